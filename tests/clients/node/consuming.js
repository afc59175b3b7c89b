'use strict';

const { Inbox, drain } = require('./inbox.js');

async function queueWith(connection, name, ...bodies) {
  const channel = await connection.createConfirmChannel();
  await channel.assertQueue(name, { exclusive: true });
  for (const body of bodies) channel.sendToQueue(name, Buffer.from(body));
  await channel.waitForConfirms();
  return channel;
}

exports.delivery = async ({ connection, name }) => {
  const channel = await queueWith(connection, name, 'hello');
  const inbox = await Inbox.on(channel, name, { consumerTag: 'mine' });
  const [message] = await inbox.waitFor(1);
  channel.ack(message);
  return { body: message.content.toString(), fields: message.fields };
};

exports.requeue = async ({ connection, name }) => {
  const channel = await queueWith(connection, name, 'again');
  const inbox = await Inbox.on(channel, name);
  await inbox.waitFor(1);
  channel.nack(inbox.messages[0], false, true);
  await inbox.waitFor(2);
  channel.ack(inbox.messages[1]);
  return inbox.messages.map((message) => [message.content.toString(), message.fields.redelivered]);
};

exports.acks = async ({ connection, name }) => {
  const channel = await queueWith(connection, name, '1', '2', '3', '4', '5');
  const holding = await connection.createChannel();
  const taken = [];
  for (let number = 0; number < 5; number++) taken.push(await holding.get(name));
  holding.ack(taken[1], true);
  holding.reject(taken[2], false);
  await holding.close();
  return drain(channel, name);
};

exports.prefetch = async ({ connection, name }) => {
  const channel = await queueWith(connection, name, '1', '2', '3', '4', '5');
  await channel.prefetch(2);
  const inbox = await Inbox.on(channel, name);
  await inbox.waitFor(2);
  const before = await channel.checkQueue(name);
  channel.ack(inbox.messages[0]);
  await inbox.waitFor(3);
  const after = await channel.checkQueue(name);
  return { ready: [before.messageCount, after.messageCount], bodies: inbox.bodies };
};

exports.priority = async ({ connection, name }) => {
  const channel = await queueWith(connection, name);
  const low = await Inbox.on(channel, name, { noAck: true });
  const high = await Inbox.on(channel, name, { noAck: true, priority: 10 });
  for (const body of ['1', '2', '3']) channel.sendToQueue(name, Buffer.from(body));
  await high.waitFor(3);
  return { high: high.bodies, low: low.bodies };
};

exports.cancelled = async ({ connection, name }) => {
  const channel = await queueWith(connection, name);
  const inbox = await Inbox.on(channel, name);
  const other = await connection.createChannel();
  await other.deleteQueue(name);
  return inbox.waitFor(1);
};

exports.directReply = async ({ connection, name }) => {
  const serving = await queueWith(connection, name);
  await serving.consume(name, ({ content, properties }) => {
    const { correlationId } = properties;
    serving.sendToQueue(properties.replyTo, Buffer.from(`re: ${content}`), { correlationId });
  }, { noAck: true });
  const asking = await connection.createChannel();
  const replies = await Inbox.on(asking, 'amq.rabbitmq.reply-to', { noAck: true });
  asking.sendToQueue(name, Buffer.from('question'), { replyTo: 'amq.rabbitmq.reply-to', correlationId: '7' });
  const [reply] = await replies.waitFor(1);
  return [reply.content.toString(), reply.properties.correlationId];
};
