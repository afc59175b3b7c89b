'use strict';

const { Inbox, drain } = require('./inbox.js');

const SOON_MS = 60;

// The higher one is at its prefetch after two; the lower gets the rest, until the higher has room again.
exports.consumerPriority = async ({ connection, name }) => {
  const channel = await connection.createConfirmChannel();
  await channel.assertQueue(name, { exclusive: true });
  const consumer = await connection.createChannel();
  await consumer.prefetch(2);
  const low = await Inbox.on(consumer, name);
  const high = await Inbox.on(consumer, name, { priority: 5 });
  for (const body of ['1', '2', '3']) channel.sendToQueue(name, Buffer.from(body));
  await Promise.all([high.waitFor(2), low.waitFor(1)]);
  consumer.ack(high.messages[0]);
  channel.sendToQueue(name, Buffer.from('4'));
  await high.waitFor(3);
  return { high: high.bodies, low: low.bodies };
};

exports.expiration = async ({ connection, name }) => {
  const channel = await connection.createConfirmChannel();
  const dead = `${name}-dead`;
  await channel.assertQueue(dead, { exclusive: true });
  await channel.assertQueue(name, { exclusive: true, deadLetterExchange: '', deadLetterRoutingKey: dead });
  channel.sendToQueue(name, Buffer.from('stays'));
  channel.sendToQueue(name, Buffer.from('expires'), { expiration: SOON_MS });
  const letters = await Inbox.on(channel, dead, { noAck: true });
  const [{ content, properties }] = await letters.waitFor(1);
  const [death] = properties.headers['x-death'];
  return {
    body: content.toString(),
    reason: death.reason,
    queue: death.queue === name,
    count: death.count,
    originalExpiration: death['original-expiration'],
    left: await drain(channel, name),
  };
};

exports.messageTtl = async ({ connection, name }) => {
  const channel = await connection.createConfirmChannel();
  await channel.assertQueue(`${name}-dead`, { exclusive: true });
  const exchange = { deadLetterExchange: '', deadLetterRoutingKey: `${name}-dead` };
  await channel.assertQueue(name, { exclusive: true, messageTtl: SOON_MS, ...exchange });
  for (const body of ['1', '2', '3']) channel.sendToQueue(name, Buffer.from(body));
  const letters = await Inbox.on(channel, `${name}-dead`, { noAck: true });
  await letters.waitFor(3);
  return { dead: letters.bodies, left: await drain(channel, name) };
};

exports.maxPriority = async ({ connection, name }) => {
  const channel = await connection.createConfirmChannel();
  await channel.assertQueue(name, { exclusive: true, maxPriority: 3 });
  for (const [index, priority] of [0, 3, 1, undefined, 9, 2, 3].entries()) {
    channel.sendToQueue(name, Buffer.from(String(index)), { priority });
  }
  await channel.waitForConfirms();
  return drain(channel, name);
};

exports.maxLength = async ({ connection, name }) => {
  const channel = await connection.createConfirmChannel();
  await channel.assertQueue(name, { exclusive: true, maxLength: 2 });
  for (const body of ['1', '2', '3', '4']) channel.sendToQueue(name, Buffer.from(body));
  await channel.waitForConfirms();
  return drain(channel, name);
};

// Which of the messages are refused: the callback of a nacked one gets an error.
exports.rejectPublish = async ({ connection, name }) => {
  const channel = await connection.createConfirmChannel();
  const options = { exclusive: true, maxLength: 2, arguments: { 'x-overflow': 'reject-publish' } };
  await channel.assertQueue(name, options);
  const sent = ['1', '2', '3', '4'].map((body) => new Promise((resolve) => {
    channel.sendToQueue(name, Buffer.from(body), {}, (error) => resolve(error ? 'nack' : 'ack'));
  }));
  return Promise.all(sent);
};

exports.delayed = async ({ connection, name }) => {
  const channel = await connection.createConfirmChannel();
  const delayed = { autoDelete: true, durable: false, arguments: { 'x-delayed-type': 'direct' } };
  await channel.assertExchange(name, 'x-delayed-message', delayed);
  await channel.assertQueue(name, { exclusive: true });
  await channel.bindQueue(name, name, 'key');
  const inbox = await Inbox.on(channel, name, { noAck: true });
  for (const factor of [5, 1]) {
    channel.publish(name, 'key', Buffer.from(String(factor)), { headers: { 'x-delay': factor * SOON_MS } });
  }
  channel.publish(name, 'key', Buffer.from('0'));
  await inbox.waitFor(3);
  return inbox.bodies;
};
