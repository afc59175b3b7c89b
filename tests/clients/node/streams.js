'use strict';

const { Inbox } = require('./inbox.js');

const SMALL = { 'x-queue-type': 'stream', 'x-stream-max-segment-size-bytes': 10000 };

async function filled(connection, name, count, valueOf = () => undefined) {
  const channel = await connection.createConfirmChannel();
  await channel.assertQueue(name, { durable: true, arguments: SMALL });
  for (let number = 0; number < count; number += 1) {
    const value = valueOf(number);
    const headers = value === undefined ? {} : { 'x-stream-filter-value': value };
    channel.sendToQueue(name, Buffer.from(String(number)), { headers });
  }
  await channel.waitForConfirms();
  return channel;
}

async function read(connection, name, count, options, prefetch = 10) {
  const channel = await connection.createChannel();
  await channel.prefetch(prefetch);
  const offsets = [];
  await new Promise((resolve, reject) => {
    const take = (message) => {
      const offset = Number(message.properties.headers['x-stream-offset']);
      if (message.content.toString() !== String(offset)) reject(new Error(`${offset}: ${message.content}`));
      if (offsets.length < count) {
        offsets.push(offset);
        channel.ack(message);
      }
      if (offsets.length === count) resolve();
    };
    channel.consume(name, take, options).catch(reject);
    channel.on('error', reject);
  });
  await channel.close();
  return offsets;
}

const from = (offset, more = {}) => ({ arguments: { 'x-stream-offset': offset, ...more } });

exports.offsets = async ({ connection, name }) => {
  const channel = await filled(connection, name, 10);
  const seen = {
    first: await read(connection, name, 10, from('first')),
    last: await read(connection, name, 1, from('last')),
    number: await read(connection, name, 4, from(6)),
    timestamp: await read(connection, name, 10, from({ '!': 'timestamp', value: 0 })),
    interval: await read(connection, name, 10, from('1h')),
  };
  await channel.deleteQueue(name);
  return seen;
};

exports.filters = async ({ connection, name }) => {
  const values = [undefined, 'a', 'b', 'a,b'];
  const channel = await filled(connection, name, 12, (number) => values[number % 4]);
  const seen = {
    a: await read(connection, name, 6, from('first', { 'x-stream-filter': 'a' })),
    both: await read(connection, name, 3, from('first', { 'x-stream-filter': 'a,b' })),
    either: await read(connection, name, 9, from('first', { 'x-stream-filter': ['a', 'b'] })),
    plain: await read(
      connection,
      name,
      6,
      from('first', { 'x-stream-filter': 'a,b', 'x-stream-match-unfiltered': true }),
    ),
  };
  await channel.deleteQueue(name);
  return seen;
};

// Each of the twenty gets all from its offset on, also what is published meanwhile.
exports.twenty = async ({ connection, name }) => {
  const channel = await filled(connection, name, 400);
  const firsts = [...Array(20).keys()].map((index) => index * 20);
  const readers = firsts.map((first) => read(connection, name, 600 - first, from(first), 1 + (first % 30)));
  for (let number = 400; number < 600; number += 1) channel.sendToQueue(name, Buffer.from(String(number)));
  await channel.waitForConfirms();
  const found = await Promise.all(readers);
  await channel.deleteQueue(name);
  return found.map((offsets, index) => offsets.every((offset, at) => offset === firsts[index] + at));
};

exports.tracking = async ({ connection, name }) => {
  const channel = await filled(connection, name, 10);
  const tracked = from('first', { 'x-stream-automatic-offset-tracking': true });
  const options = { consumerTag: 'me', ...tracked };
  const seen = [await read(connection, name, 4, options), await read(connection, name, 6, options)];
  await channel.deleteQueue(name);
  return seen;
};

exports.withoutPrefetch = async ({ connection, name }) => {
  const channel = await filled(connection, name, 1);
  const consumer = await connection.createChannel();
  consumer.on('error', () => {});
  const error = await Inbox.on(consumer, name).catch((refused) => refused);
  await channel.deleteQueue(name);
  return error.code;
};
