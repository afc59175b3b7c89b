'use strict';

const { drain } = require('./inbox.js');

exports.serverNamed = async ({ connection }) => {
  const channel = await connection.createChannel();
  return channel.assertQueue('', { exclusive: true });
};

exports.exchanges = async ({ connection, name }) => {
  const channel = await connection.createConfirmChannel();
  const bindings = {
    direct: ['red', {}],
    fanout: ['', {}],
    topic: ['*.blue.#', {}],
    headers: ['', { 'x-match': 'all', colour: 'green' }],
  };
  const received = {};
  for (const [type, [pattern, args]] of Object.entries(bindings)) {
    const exchange = `${name}-${type}`;
    await channel.assertExchange(exchange, type, { durable: false, autoDelete: true });
    const { queue } = await channel.assertQueue('', { exclusive: true });
    await channel.bindQueue(queue, exchange, pattern, args);
    channel.publish(exchange, 'red', Buffer.from('red'));
    channel.publish(exchange, 'sky.blue', Buffer.from('blue'));
    channel.publish(exchange, 'any', Buffer.from('green'), { headers: { colour: 'green' } });
    await channel.waitForConfirms();
    received[type] = await drain(channel, queue);
  }
  return received;
};

exports.exchangeToExchange = async ({ connection, name }) => {
  const channel = await connection.createConfirmChannel();
  const transient = { durable: false, autoDelete: true };
  await channel.assertExchange(`${name}-spare`, 'fanout', transient);
  await channel.assertExchange(`${name}-target`, 'fanout', transient);
  await channel.assertExchange(name, 'topic', { ...transient, alternateExchange: `${name}-spare` });
  await channel.bindExchange(`${name}-target`, name, 'known.#');
  const queues = { target: '', spare: '' };
  for (const kind of Object.keys(queues)) {
    queues[kind] = (await channel.assertQueue('', { exclusive: true })).queue;
    await channel.bindQueue(queues[kind], `${name}-${kind}`, '');
  }
  for (const key of ['known.way', 'unknown']) channel.publish(name, key, Buffer.from(key));
  await channel.waitForConfirms();
  const received = { target: await drain(channel, queues.target), spare: await drain(channel, queues.spare) };
  await channel.unbindExchange(`${name}-target`, name, 'known.#');
  return received;
};

exports.removal = async ({ connection, name }) => {
  const channel = await connection.createChannel();
  await channel.assertQueue(name, { exclusive: true });
  for (const body of ['1', '2', '3']) channel.sendToQueue(name, Buffer.from(body));
  const purged = await channel.purgeQueue(name);
  channel.sendToQueue(name, Buffer.from('4'));
  const deleted = await channel.deleteQueue(name);
  const missing = await channel.deleteQueue(name);
  return [purged, deleted, missing].map(({ messageCount }) => messageCount);
};
