// Stores, plans and checks prompts as a connector does, for the Go test beside it. It reads one line of JSON
// for each case and writes one: what it stored by the mask, and the plan of the same prompt.
import readline from "node:readline";
import { Client } from "./client.mjs";

const [host, port] = process.argv[2].split(":");
const token = process.argv[3];

for await (const line of readline.createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await run(JSON.parse(line)).catch((error) => ({ error: String(error) }))));
}

// run stores the chunks of the first stored tokens by single stores, if bulk is false, or in one message.
async function run({ pool, hashes, tokens, stored, ranks, strides, states, bulk }) {
  const client = await Client.connect({ host, port: Number(port) });
  try {
    await client.auth(token);
    await client.pool(pool);
    const blocks = hashes.map((hex) => Buffer.from(hex, "hex"));
    const masks = await client.storeMask(stored);
    if (bulk) await client.storePrompt(stored, blocks, { states });
    else await storeByMask(client, masks, blocks, { ranks, strides, states, unit: pool.hash_block_size });
    const plan = await client.plan(tokens, blocks);
    const { tokens: hit } = await client.lookup(tokens, blocks);
    const load = hit > 0 ? await client.loadMask(hit, blocks.length) : [];
    return { masks, plan, hit, load, server: await client.server() };
  } finally {
    client.close();
  }
}

// storeByMask sends a store for each run of each mask and each rank, and for each state.
async function storeByMask(client, masks, blocks, { ranks, strides, states, unit }) {
  for (const { group, runs } of masks.filter((m) => m.group !== null)) {
    const key = (chunk) => blocks[(chunk + 1) * strides[group] - 1];
    for (const rank of ranks[group]) {
      for (const [from, to] of runs) {
        const keys = Array.from({ length: to - from }, (_, i) => key(from + i));
        await client.store({ group, ...rank }, from, keys, ...(from > 0 ? [key(from - 1)] : []));
      }
    }
  }
  for (const [group, end] of states.filter(([, end]) => end > 0)) {
    for (const rank of ranks[group]) await client.store({ group, ...rank }, 0xffffffff, [blocks[end / unit - 1]]);
  }
}
