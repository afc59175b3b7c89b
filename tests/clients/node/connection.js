'use strict';

const { once } = require('node:events');
const amqplib = require('amqplib');
const { Inbox } = require('./inbox.js');

exports.serverProperties = async ({ connection }) => connection.connection.serverProperties;

// amqplib drops heartbeats without telling, so this looks at each frame before amqplib does.
// On channel 0 only a heartbeat has no method id.
function heartbeats(connection, count) {
  const accept = connection.accept;
  let heard = 0;
  return new Promise((resolve) => {
    connection.accept = function look(frame) {
      if (frame.channel === 0 && !frame.id && ++heard === count) resolve(heard);
      return accept.call(this, frame);
    };
  });
}

exports.heartbeat = async ({ url }) => {
  const beating = await amqplib.connect(`${url}?heartbeat=1`);
  const heard = await heartbeats(beating.connection, 2);
  await beating.close();
  return { agreed: beating.connection.heartbeat, heard };
};

exports.updateSecret = async ({ connection }) => {
  const confirmed = once(connection, 'update-secret-ok');
  await connection.updateSecret(Buffer.from('guest'), 'rotated');
  await confirmed;
  const channel = await connection.createChannel();
  return (await channel.assertQueue('', { exclusive: true })).messageCount;
};

exports.channels = async ({ connection }) => {
  connection.on('blocked', (reason) => {
    throw new Error(`blocked: ${reason}`);
  });
  const publisher = await connection.createChannel();
  const inboxes = [];
  for (let number = 0; number < 50; number++) {
    const channel = await connection.createChannel();
    const { queue } = await channel.assertQueue('', { exclusive: true });
    inboxes.push(await Inbox.on(channel, queue, { noAck: true }));
    publisher.sendToQueue(queue, Buffer.from(String(number)));
  }
  await Promise.all(inboxes.map((inbox) => inbox.waitFor(1)));
  return inboxes.map((inbox) => inbox.bodies);
};
