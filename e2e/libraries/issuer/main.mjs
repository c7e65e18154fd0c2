import { Provider } from 'oidc-provider';
import { createServer } from 'node:http';

// An issuer of OpenID Connect with one client, whose redirect address is the argument. It prints its own address, which
// it is then ready to serve. Whoever signs in has that name at example.test, as an address that is verified, except mallory's.
const server = createServer();
server.listen(0, '127.0.0.1', () => {
  const issuer = `http://localhost:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [{ client_id: 'slipway', client_secret: 'a-client-secret', redirect_uris: [process.argv[2]] }],
    claims: { openid: ['sub'], email: ['email', 'email_verified'] },
    findAccount: (ctx, id) => ({ accountId: id, claims: () => ({ sub: id, email: `${id}@example.test`, email_verified: id !== 'mallory' }) }),
    features: { devInteractions: { enabled: true } },
  });
  server.on('request', provider.callback());
  console.log(issuer);
});
