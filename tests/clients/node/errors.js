'use strict';

const { once } = require('node:events');
const amqplib = require('amqplib');

// What closes the channel, the code it closes it with, and whether the connection goes on.
async function closedBy(connection, act) {
  const channel = await connection.createChannel();
  const closed = once(channel, 'error');
  Promise.resolve(act(channel)).catch(() => {});
  const [error] = await closed;
  const next = await connection.createChannel();
  const { queue } = await next.assertQueue('', { exclusive: true });
  return { code: error.code, goesOn: queue.startsWith('amq.gen-') };
}

exports.missingQueue = ({ connection, name }) => closedBy(connection, (channel) => channel.checkQueue(name));

exports.missingExchange = ({ connection, name }) =>
  closedBy(connection, (channel) => channel.publish(name, '', Buffer.from('lost')));

exports.inequivalent = async ({ connection, name }) => {
  const channel = await connection.createChannel();
  await channel.assertQueue(name, { exclusive: true });
  return closedBy(connection, (other) => other.assertQueue(name, { exclusive: true, autoDelete: true }));
};

exports.reserved = ({ connection, name }) =>
  closedBy(connection, (channel) => channel.assertQueue(`amq.${name}`, { durable: false }));

exports.unknownTag = ({ connection }) =>
  closedBy(connection, (channel) => channel.ack({ fields: { deliveryTag: 99 } }));

exports.locked = async ({ connection, name, url }) => {
  const owner = await amqplib.connect(url);
  await (await owner.createChannel()).assertQueue(name, { exclusive: true });
  const seen = await closedBy(connection, (channel) => channel.get(name));
  await owner.close();
  return seen;
};

async function refusal(url) {
  try {
    await amqplib.connect(url);
    return 'connected';
  } catch (error) {
    return error.message;
  }
}

exports.wrongPassword = ({ url }) => refusal(url.replace(':guest@', ':wrong@'));

exports.unknownVhost = ({ url, name }) => refusal(url.replace(/%2F$/, name));
