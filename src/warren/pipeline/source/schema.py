"""The columns of the table that any queue is read as, in Spark's types; `segments/schema.py` has Arrow's."""

SCHEMA = (
    "vhost string, queue string, stream_id string, offset long, timestamp timestamp, exchange string, "
    "routing_key string, message_id string, correlation_id string, content_type string, "
    "content_encoding string, type string, app_id string, user_id string, reply_to string, priority int, "
    "delivery_mode int, expiration string, published_at timestamp, cluster_id string, "
    "headers map<string,string>, header_types map<string,string>, "
    "x_death array<struct<count:long,exchange:string,queue:string,reason:string,routing_keys:array<string>,"
    "time:timestamp,original_expiration:string>>, body binary"
)
