// A proxy that adds a bearer token to every request and changes no other byte, because the suite has no option for a token.
// Run as: TOKEN=… node proxy.mjs http://HOST:PORT. Prints `ready` and its own URL, and serves until it is killed.
//
// The proxy parses only the boundaries of requests. The suite sends the length of every body.

import net from 'node:net';
import process from 'node:process';

const gateway = new URL(process.argv[2]);
const AUTHORIZATION = `Authorization: Bearer ${process.env.TOKEN}\r\n`;
const HEAD_END = Buffer.from('\r\n\r\n');
const LARGEST_HEAD = 64 * 1024;

// Forwards the data of a client, with an additional line after each request line.
class Requests {
  pending = Buffer.alloc(0);
  body = 0;

  *read(bytes) {
    this.pending = Buffer.concat([this.pending, bytes]);
    for (;;) {
      if (this.body > 0) {
        const part = this.pending.subarray(0, this.body);
        this.pending = this.pending.subarray(part.length);
        this.body -= part.length;
        if (part.length > 0) yield part;
        if (this.body > 0) return;
      }
      const end = this.pending.indexOf(HEAD_END);
      if (end < 0) {
        if (this.pending.length > LARGEST_HEAD) throw new Error('a head without an end');
        return;
      }
      const head = this.pending.toString('latin1', 0, end + HEAD_END.length);
      if (/^transfer-encoding:/im.test(head)) throw new Error('a body without a length');
      this.pending = this.pending.subarray(end + HEAD_END.length);
      this.body = Number(/^content-length:[ \t]*(\d+)/im.exec(head)?.[1] ?? 0);
      const line = head.indexOf('\r\n') + 2;
      yield Buffer.from(head.slice(0, line) + AUTHORIZATION + head.slice(line), 'latin1');
    }
  }
}

const server = net.createServer({ noDelay: true, allowHalfOpen: true }, client => {
  const upstream = net.connect({ port: Number(gateway.port), host: gateway.hostname, noDelay: true, allowHalfOpen: true });
  const requests = new Requests();
  const both = [client, upstream];
  client.on('data', bytes => {
    try {
      for (const part of requests.read(bytes)) upstream.write(part);
    } catch (error) {
      console.error(`not handed on: ${error.message}`);
      both.forEach(socket => socket.destroy());
    }
  });
  client.on('end', () => upstream.end());
  upstream.pipe(client);
  // If one side closes, the other is closed too.
  for (const socket of both) {
    socket.on('error', () => both.forEach(each => each.destroy()));
    socket.on('close', () => both.forEach(each => each.destroy()));
  }
});

server.listen(0, '127.0.0.1', () => console.log(`ready http://127.0.0.1:${server.address().port}`));
