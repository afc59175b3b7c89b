"""Columns that several jobs compute from a message in the same way."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as sf

DAY_US = 86_400_000_000
PERCENTILES = (0.5, 0.95, 0.99)
ACCURACY = 10_000
SECONDS_BELOW = 100_000_000_000
"""A publisher's time below this is taken for seconds: as milliseconds it would be before 1973."""

TIME_HEADER = "timestamp_in_ms"


def utc_date(timestamp: Column) -> Column:
    """The day in UTC, whatever the session's time zone is."""
    return sf.date_from_unix_date(sf.floor(sf.unix_micros(timestamp) / sf.lit(DAY_US)).cast("int"))


def published_ms(header: str) -> Column:
    """When the publisher sent the message, by a header with milliseconds or seconds since 1970, or with a
    time in ISO 8601. Null if there is no such header, or it is in another form.
    """
    text = sf.col("headers")[header]
    number = text.try_cast("long")
    from_number = sf.when(number < SECONDS_BELOW, number * 1000).otherwise(number)
    return sf.coalesce(from_number, sf.unix_millis(text.try_cast("timestamp")))


def since_published_ms(timestamp: Column, header: str) -> Column:
    """How long the message took from its publisher to the broker; negative if their clocks differ. Without
    the header, the property timestamp counts, which has whole seconds.
    """
    return sf.unix_millis(timestamp) - sf.coalesce(published_ms(header), sf.unix_millis("published_at"))


def published_time(header: str) -> Column:
    """When the message was published, as its publisher says, or else when it arrived."""
    return sf.coalesce(sf.timestamp_millis(published_ms(header)), "published_at", "timestamp")


def percentiles(value: Column) -> Column:
    """An array with the value at each of PERCENTILES; exact for up to some thousands of values."""
    return sf.percentile_approx(value, list(PERCENTILES), ACCURACY)
