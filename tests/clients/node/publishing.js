'use strict';

const { createHash, randomBytes } = require('node:crypto');

exports.confirms = async ({ connection, name }) => {
  const channel = await connection.createConfirmChannel();
  await channel.assertQueue(name, { exclusive: true });
  const confirmed = [];
  for (let number = 0; number < 500; number++) {
    channel.sendToQueue(name, Buffer.from(String(number)), {}, (error) => confirmed.push(error ? 'nack' : number));
  }
  await channel.waitForConfirms();
  return { confirmed, ready: (await channel.checkQueue(name)).messageCount };
};

exports.returned = async ({ connection, name }) => {
  const channel = await connection.createConfirmChannel();
  const events = [];
  channel.on('return', ({ fields, content }) => {
    events.push(['return', fields.replyCode, fields.replyText, fields.routingKey, content.toString()]);
  });
  channel.publish('amq.direct', name, Buffer.from('back'), { mandatory: true }, () => events.push(['confirm']));
  await channel.waitForConfirms();
  return events;
};

exports.largeBody = async ({ connection, name }) => {
  const digest = (body) => createHash('sha256').update(body).digest('hex');
  const channel = await connection.createChannel();
  await channel.assertQueue(name, { exclusive: true });
  const body = randomBytes(3 * 1024 * 1024 + 1);
  channel.sendToQueue(name, body);
  const { content } = await channel.get(name, { noAck: true });
  return { length: content.length, same: digest(content) === digest(body) };
};

// amqplib writes a value in the type asked for, and says of some what type it read.
const HEADERS = {
  text: 'żółw',
  empty: '',
  int8: { '!': 'int8', value: -128 },
  uint8: { '!': 'uint8', value: 255 },
  int16: { '!': 'int16', value: -32768 },
  uint16: { '!': 'uint16', value: 65535 },
  int32: { '!': 'int32', value: -2147483648 },
  uint32: { '!': 'uint32', value: 4294967295 },
  int64: { '!': 'int64', value: 1099511627776 },
  float: { '!': 'float', value: 0.5 },
  double: 3.141592653589793,
  decimal: { '!': 'decimal', value: { places: 2, digits: 314 } },
  timestamp: { '!': 'timestamp', value: 1700000000 },
  true: true,
  false: false,
  none: null,
  bytes: Buffer.from([0, 255]),
  table: { deep: { deeper: [1, { deepest: null }] } },
  array: ['a', 1, 2.5, [true], {}],
};

exports.headers = async ({ connection, name }) => {
  const channel = await connection.createChannel();
  await channel.assertQueue(name, { exclusive: true });
  channel.sendToQueue(name, Buffer.from(''), { headers: HEADERS });
  return (await channel.get(name, { noAck: true })).properties.headers;
};

exports.properties = async ({ connection, name }) => {
  const channel = await connection.createChannel();
  await channel.assertQueue(name, { exclusive: true });
  channel.sendToQueue(name, Buffer.from(''), {
    contentType: 'application/json',
    contentEncoding: 'gzip',
    headers: {},
    persistent: true,
    priority: 9,
    correlationId: 'correlation',
    replyTo: 'reply',
    expiration: '60000',
    messageId: 'message',
    timestamp: 1700000000,
    type: 'type',
    userId: 'guest',
    appId: 'app',
  });
  return (await channel.get(name, { noAck: true })).properties;
};

exports.copies = async ({ connection, name }) => {
  const channel = await connection.createChannel();
  const queues = [name, `${name}-cc`, `${name}-bcc`];
  for (const queue of queues) await channel.assertQueue(queue, { exclusive: true });
  channel.sendToQueue(name, Buffer.from(''), { CC: queues[1], BCC: [queues[2]] });
  const received = [];
  for (const queue of queues) received.push(Object.keys((await channel.get(queue)).properties.headers));
  return received;
};
