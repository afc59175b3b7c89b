"""A load tool for any broker that speaks AMQP 0-9-1: throughput, latency, streams, connections and churn."""
