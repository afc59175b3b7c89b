// Runs one scenario against a broker and prints what it saw as JSON: node run.js URL NAME FILE SCENARIO
'use strict';

const amqplib = require('amqplib');

async function main(url, name, file, scenario) {
  const run = require(`./${file}.js`)[scenario];
  const connection = await amqplib.connect(url);
  const seen = await run({ connection, name, url });
  await connection.close();
  console.log(JSON.stringify(seen));
}

main(...process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
