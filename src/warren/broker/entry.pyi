from warren.broker.consumer import Consumer
from warren.broker.message import Message
from warren.broker.queue import Queue

class Entry:
    message: Message
    queue: Queue
    consumer: Consumer | None
    position: int
    size: int
    delivery_count: int
    location: int
    expiry_noted: int
    returned: bool
    delivered_ms: int
    before: Entry | None
    behind: Entry | None
    def __init__(self, message: Message, queue: Queue, position: int) -> None: ...
