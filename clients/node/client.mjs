// A client of the hitline server for Node, by docs/protocol.md alone: the raw dialect over TCP or a unix
// socket, the requests that a store client needs, one after the other on one connection.
import net from "node:net";

const MORE = 1;
const LONG = 2;
const NONE = 0xffffffff; // a group that is not in the store, a mask of all chunks, an unknown number

export class Refused extends Error {
  constructor(text, details) {
    super(text);
    this.details = details; // the third frame, parsed, if there is one
  }
}

const u16 = (...values) => integers(2, values);
const u32 = (...values) => integers(4, values);
const blob = (hashes) => [u16(hashes[0]?.length ?? 0), Buffer.concat(hashes)]; // and their length in front

function integers(size, values) {
  const out = Buffer.alloc(size * values.length);
  values.forEach((v, i) => out.writeUIntBE(v, size * i, size));
  return out;
}

function numbersOf(frame) {
  return Array.from({ length: frame.length / 4 }, (_, i) => frame.readUInt32BE(4 * i));
}

function encode(frames) {
  return frames.flatMap((body, i) => {
    const more = i < frames.length - 1 ? MORE : 0;
    if (body.length < 256) return [Buffer.from([more, body.length]), body];
    const head = Buffer.alloc(9);
    head[0] = more | LONG;
    head.writeBigUInt64BE(BigInt(body.length), 1);
    return [head, body];
  });
}

// decode returns the frames of the message at the front of the bytes and how long it is, null if it is cut.
function decode(bytes) {
  const frames = [];
  for (let at = 0; ; ) {
    const long = at < bytes.length && bytes[at] & LONG;
    const head = long ? 9 : 2;
    if (at + head > bytes.length) return null;
    const size = long ? Number(bytes.readBigUInt64BE(at + 1)) : bytes[at + 1];
    if (at + head + size > bytes.length) return null;
    frames.push(bytes.subarray(at + head, at + head + size));
    const more = bytes[at] & MORE;
    at += head + size;
    if (!more) return { frames, length: at };
  }
}

function masksOf(frame) {
  const masks = [];
  for (const n = numbersOf(frame); n.length > 0; ) {
    const [group, first, end, count] = n.splice(0, 4);
    const runs = count === NONE ? [[first, end]] : Array.from({ length: count }, () => n.splice(0, 2));
    masks.push({ group: group === NONE ? null : group, first, end, runs: runs.filter(([from, to]) => from < to) });
  }
  return masks;
}

function hitOf(frame) {
  const [tokens, ...tails] = numbersOf(frame);
  return { tokens, tails: Array.from({ length: tails.length / 2 }, (_, i) => tails[2 * i + 1]) };
}

export class Client {
  #socket;
  #bytes = Buffer.alloc(0);
  #waiting = []; // for replies, in the order of the requests
  #lost = null;

  // connect takes the options of net.connect: {host, port} or {path}. timeout is in milliseconds.
  static connect(options, timeout = 10_000) {
    const client = new Client();
    return new Promise((resolve, reject) => {
      const socket = (client.#socket = net.connect({ noDelay: true, ...options }, () => resolve(client)));
      socket.setTimeout(timeout, () => client.#waiting.length && socket.destroy(new Error("no reply in time")));
      socket.on("data", (piece) => client.#receive(piece));
      socket.on("error", reject);
      socket.on("error", (error) => (client.#lost = error));
      socket.on("close", () => client.#waiting.splice(0).forEach((w) => w.reject(client.#lost ?? new Error("closed"))));
    });
  }

  close() {
    this.#socket.end();
  }

  #receive(piece) {
    this.#bytes = Buffer.concat([this.#bytes, piece]);
    for (let reply; (reply = decode(this.#bytes)); this.#bytes = this.#bytes.subarray(reply.length)) {
      this.#waiting.shift()?.resolve(reply.frames);
    }
  }

  // request sends frames and returns those behind the status 01. A Refused is thrown for 00.
  async request(tag, ...frames) {
    const [status, ...rest] = await this.#exchange(tag, frames);
    if (status.length !== 1 || status[0] > 1) throw new Error(`${tag}: unknown status ${status.toString("hex")}`);
    if (status[0] === 0) throw new Refused(`${tag}: ${rest[0] ?? "refused"}`, rest[1] && JSON.parse(rest[1]));
    return rest;
  }

  #exchange(tag, frames) {
    return new Promise((resolve, reject) => {
      if (this.#socket.destroyed) return reject(this.#lost ?? new Error("closed"));
      this.#waiting.push({ resolve, reject });
      this.#socket.cork();
      encode([Buffer.from(tag), ...frames]).forEach((part) => this.#socket.write(part));
      this.#socket.uncork();
    });
  }

  // auth gives the connection the permissions of a token.
  auth = async (token) => JSON.parse((await this.request("auth", Buffer.from(token)))[0]);
  // pool describes the pool that the connection is about, or names it.
  pool = async (description) => JSON.parse((await this.request("pool", Buffer.from(JSON.stringify(description))))[0]);
  server = async () => JSON.parse((await this.request("ping"))[0]);
  explain = async (tokens, hashes) => JSON.parse((await this.request("explain", u32(tokens), ...blob(hashes)))[0]);

  async lookup(tokens, hashes) {
    const [reply, reason] = await this.#exchange("lookup", [u32(tokens), ...blob(hashes)]);
    if (reply.length < 4) throw new Refused(`lookup: ${reason ?? "refused"}`);
    return hitOf(reply);
  }

  async plan(tokens, hashes) {
    const [hit, masks] = await this.request("plan", u32(tokens), ...blob(hashes));
    return { ...hitOf(hit), masks: masksOf(masks) };
  }

  masks = async (tag, ...numbers) => masksOf((await this.request(tag, u32(...numbers)))[0]);
  storeMask = (tokens, start = 0, prompt = NONE) => this.masks("store_mask", tokens, start, prompt);
  loadMask = (tokens, hashes) => this.masks("load_mask", tokens, hashes);

  // store says that a rank of a group holds keys, from chunk number first on; before is the key in front.
  store = ({ group, tp = 0, pp = 0, pcp = 0 }, first, keys, ...before) =>
    this.request("store", Buffer.concat([u16(group, tp, pp, pcp), u32(first)]), ...blob(keys), ...before);
  evict = ({ group, tp = 0, pp = 0, pcp = 0 }, keys) => this.request("evict", u16(group, tp, pp, pcp), ...blob(keys));

  // storePrompt stores what the mask says, on all ranks. states are those of mamba groups: [group, token].
  async storePrompt(tokens, hashes, { start = 0, prompt = NONE, first = 0, states = [] } = {}) {
    const frames = [u32(tokens, start, prompt, first), u16(), u32(...states.flat()), ...blob(hashes)];
    return numbersOf((await this.request("store_prompt", ...frames))[0]);
  }
}
