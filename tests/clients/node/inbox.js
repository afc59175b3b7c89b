// A consumer that keeps what it gets.
'use strict';

class Inbox {
  constructor(channel) {
    this.channel = channel;
    this.messages = [];
    this.waiting = [];
  }

  static async on(channel, queue, options) {
    const inbox = new Inbox(channel);
    const { consumerTag } = await channel.consume(queue, (message) => inbox.take(message), options);
    inbox.tag = consumerTag;
    return inbox;
  }

  // amqplib hands out null when the broker cancels the consumer.
  take(message) {
    this.messages.push(message);
    this.waiting = this.waiting.filter(({ count, resolve }) => {
      if (this.messages.length < count) return true;
      resolve(this.messages);
      return false;
    });
  }

  waitFor(count) {
    return new Promise((resolve) => {
      if (this.messages.length >= count) resolve(this.messages);
      else this.waiting.push({ count, resolve });
    });
  }

  get bodies() {
    return this.messages.map((message) => message.content.toString());
  }
}

async function drain(channel, queue) {
  const bodies = [];
  for (;;) {
    const message = await channel.get(queue, { noAck: true });
    if (!message) return bodies;
    bodies.push(message.content.toString());
  }
}

module.exports = { Inbox, drain };
