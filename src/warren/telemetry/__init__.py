"""OpenTelemetry: spans of sampled messages. Needs the extra `warrenmq[otel]`."""
