"""A Spark job: it reads a stream as a table, adds up what each customer has paid, and publishes the totals.

    pip install 'warrenmq[spark]' pika
    python examples/spark_job.py

AMQP_URL and HTTP_URL name the broker; without them, the program uses the one on this machine.

`spark_session` finds a Java by itself. The data source `warren` reads streams, and queues without taking
anything from them, over the broker's HTTP API; it publishes rows over AMQP, with confirms. The program
fills a stream with payments, and prints the totals as they come back from a queue:

    ada has paid 14850
    bela has paid 14950
    cleo has paid 15050
"""

import json
import os

import pika
from pyspark.sql import functions as f

import warren

AMQP_URL = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/%2F")
HTTP_URL = os.environ.get("HTTP_URL", "http://127.0.0.1:15672")
PAYMENTS, TOTALS = "example.payments", "example.totals"
CUSTOMERS = ("ada", "bela", "cleo")


def fill_stream() -> None:
    with pika.BlockingConnection(pika.URLParameters(AMQP_URL)) as connection:
        channel = connection.channel()
        for queue, arguments in ((PAYMENTS, {"x-queue-type": "stream"}), (TOTALS, {})):
            channel.queue_delete(queue)  # an earlier run has left it
            channel.queue_declare(queue, durable=True, arguments=arguments)
        channel.confirm_delivery()
        for number in range(300):
            payment = {"customer": CUSTOMERS[number % 3], "amount": number}
            channel.basic_publish("", PAYMENTS, json.dumps(payment).encode())


def publish_totals() -> None:
    spark = warren.spark_session("payments", master="local[2]")
    messages = spark.read.format("warren").option("url", HTTP_URL).option("subscribe", PAYMENTS).load()
    payments = messages.select(
        f.from_json(f.col("body").cast("string"), "customer string, amount long").alias("payment")
    )
    totals = payments.groupBy("payment.customer").agg(f.sum("payment.amount").alias("total"))
    rows = totals.select(
        f.to_json(f.struct("customer", "total")).alias("body"), f.lit(TOTALS).alias("routing_key")
    )
    rows.write.format("warren").option("amqp", AMQP_URL).option("exchange", "").mode("append").save()
    spark.stop()


def print_totals() -> None:
    with pika.BlockingConnection(pika.URLParameters(AMQP_URL)) as connection:
        channel = connection.channel()
        found = [json.loads(channel.basic_get(TOTALS, auto_ack=True)[2]) for _ in CUSTOMERS]
    for total in sorted(found, key=lambda total: total["customer"]):
        print(f"{total['customer']} has paid {total['total']}")


def main() -> None:
    fill_stream()
    publish_totals()
    print_totals()


if __name__ == "__main__":
    main()
