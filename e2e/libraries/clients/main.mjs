import assert from 'node:assert/strict';
import { createInterface } from 'node:readline';
import * as oauth from 'oauth4webapi';
import * as openid from 'openid-client';
import simple from 'simple-oauth2';
import * as mcp from '@modelcontextprotocol/client';
import * as sdkAuth from '@modelcontextprotocol/sdk/client/auth.js';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

// A program that signs in with one of the public client libraries, against the server and with the app of the arguments:
//
//	node main.mjs LIBRARY BASE CLIENT_ID CLIENT_SECRET REDIRECT_URI
//
// Where a person must act it prints a line of JSON and reads one: {"visit": URL} is answered by the address that the
// person's browser is led to, {"device": CODE, "at": URL} by anything once the person has decided.
const [library, base, id, secret, redirect] = process.argv.slice(2);
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const person = async (does) => {
  console.log(JSON.stringify(does));
  return JSON.parse((await lines.next()).value);
};
const sdk = { ...sdkAuth, Client, StreamableHTTPClientTransport };
const resource = base + '/api/v1';
const scope = 'sites:read deployments:write';
const ofAnotherIssuer = (err) => /"iss"/.test(err.cause.message);
const foreign = (address) => {
  const u = new URL(address);
  u.searchParams.set('iss', 'https://other.test');
  return u;
};

const libraries = {
  async oauth4webapi() {
    const insecure = { [oauth.allowInsecureRequests]: true };
    const about = new URL(resource);
    const protectedBy = await oauth.processResourceDiscoveryResponse(about, await oauth.resourceDiscoveryRequest(about, insecure));
    const issuer = new URL(protectedBy.authorization_servers[0]);
    const as = await oauth.processDiscoveryResponse(issuer, await oauth.discoveryRequest(issuer, { algorithm: 'oauth2', ...insecure }));
    const client = { client_id: id };
    const auth = secret ? oauth.ClientSecretBasic(secret) : oauth.None();
    const sites = (token) => oauth.protectedResourceRequest(token, 'GET', new URL(resource + '/sites'), undefined, undefined, insecure);

    await assert.rejects(sites('slo_nothing'), (err) => {
      assert.equal(err.constructor.name, 'WWWAuthenticateChallengeError');
      const { scheme, parameters } = err.cause[0];
      assert.equal(scheme, 'bearer');
      assert.equal(parameters.error, 'invalid_token');
      assert.equal(parameters.resource_metadata, base + '/.well-known/oauth-protected-resource/api/v1');
      return true;
    });

    const verifier = oauth.generateRandomCodeVerifier();
    const state = oauth.generateRandomState();
    const at = new URL(as.authorization_endpoint);
    at.search = new URLSearchParams({
      client_id: id, redirect_uri: redirect, response_type: 'code', scope, state, resource,
      code_challenge: await oauth.calculatePKCECodeChallenge(verifier), code_challenge_method: 'S256',
    });
    const answer = new URL(await person({ visit: at.href }));
    assert.throws(() => oauth.validateAuthResponse(as, client, foreign(answer), state), /iss/);
    const params = oauth.validateAuthResponse(as, client, answer, state);
    const exchange = () => oauth.authorizationCodeGrantRequest(as, client, auth, params, redirect, verifier,
      { additionalParameters: { resource }, ...insecure });
    const got = await oauth.processAuthorizationCodeResponse(as, client, await exchange());
    assert.equal(got.scope, scope);
    assert.equal((await sites(got.access_token)).status, 200);

    const next = await oauth.processRefreshTokenResponse(as, client,
      await oauth.refreshTokenGrantRequest(as, client, auth, got.refresh_token, insecure));
    assert.notEqual(next.refresh_token, got.refresh_token);
    if (secret) {
      const told = await oauth.processIntrospectionResponse(as, client,
        await oauth.introspectionRequest(as, client, auth, next.access_token, insecure));
      assert.equal(told.active, true);
      assert.equal(told.scope, scope);
      assert.equal(told.aud, resource);
    }
    await oauth.processRevocationResponse(await oauth.revocationRequest(as, client, auth, next.refresh_token, insecure));
    await assert.rejects(sites(next.access_token), (err) => err.status === 401);

    const device = await oauth.processDeviceAuthorizationResponse(as, client,
      await oauth.deviceAuthorizationRequest(as, client, auth, { scope: 'sites:read' }, insecure));
    await person({ device: device.user_code, at: device.verification_uri });
    const onDevice = await oauth.processDeviceCodeResponse(as, client,
      await oauth.deviceCodeGrantRequest(as, client, auth, device.device_code, insecure));
    assert.equal((await sites(onDevice.access_token)).status, 200);

    // A second use of the code: refused, and the error is one that the library understands.
    await assert.rejects(oauth.processAuthorizationCodeResponse(as, client, await exchange()), { error: 'invalid_grant' });
  },

  async 'openid-client'() {
    const auth = secret ? openid.ClientSecretPost(secret) : openid.None();
    const config = await openid.discovery(new URL(base), id, undefined, auth,
      { algorithm: 'oauth2', execute: [openid.allowInsecureRequests] });
    const sites = (token) => openid.fetchProtectedResource(config, token, new URL(resource + '/sites'), 'GET');
    const pkceCodeVerifier = openid.randomPKCECodeVerifier();
    const expectedState = openid.randomState();
    const visit = openid.buildAuthorizationUrl(config, {
      redirect_uri: redirect, scope, state: expectedState, resource,
      code_challenge: await openid.calculatePKCECodeChallenge(pkceCodeVerifier), code_challenge_method: 'S256',
    });
    const refusal = new URL(await person({ visit: visit.href, decision: 'deny' }));
    await assert.rejects(openid.authorizationCodeGrant(config, foreign(refusal), { pkceCodeVerifier, expectedState }), ofAnotherIssuer);
    await assert.rejects(openid.authorizationCodeGrant(config, refusal, { pkceCodeVerifier, expectedState }), { error: 'access_denied' });

    const answer = new URL(await person({ visit: visit.href }));
    await assert.rejects(openid.authorizationCodeGrant(config, foreign(answer), { pkceCodeVerifier, expectedState }), ofAnotherIssuer);
    const got = await openid.authorizationCodeGrant(config, answer, { pkceCodeVerifier, expectedState });
    assert.equal((await sites(got.access_token)).status, 200);
    const fresh = await Promise.all(Array.from({ length: 8 }, () => openid.refreshTokenGrant(config, got.refresh_token)));
    assert.equal(new Set(fresh.map((t) => t.access_token)).size, 1);
    const narrow = await openid.refreshTokenGrant(config, fresh[0].refresh_token, { scope: 'deployments:write' });
    assert.equal(narrow.scope, 'deployments:write');
    await assert.rejects(sites(narrow.access_token), (err) => err.status === 403 && err.cause[0].parameters.error === 'insufficient_scope');

    const device = await openid.initiateDeviceAuthorization(config, { scope: 'sites:read' });
    await person({ device: device.user_code, at: device.verification_uri, decision: 'deny' });
    await assert.rejects(openid.pollDeviceAuthorizationGrant(config, { ...device, interval: 1 }), { error: 'access_denied' });

    await openid.tokenRevocation(config, narrow.access_token);
    await assert.rejects(openid.refreshTokenGrant(config, narrow.refresh_token), { error: 'invalid_grant' });
  },

  // Clients of MCP know nothing but the address of a resource: the 401 leads to its metadata, that to the server's, and
  // the client is named by the address of a document about itself, or registers itself.
  '@modelcontextprotocol/client': () => protocolClient(mcp),
  '@modelcontextprotocol/sdk': () => protocolClient(sdk),

  // It has no PKCE of its own, so the app is told that it's required.
  async 'simple-oauth2'() {
    const client = new simple.AuthorizationCode({
      client: { id, secret: secret || 'none' },
      auth: { tokenHost: base, tokenPath: '/oauth/token', authorizePath: '/oauth/authorize' },
    });
    const answer = new URL(await person({ visit: client.authorizeURL({ redirect_uri: redirect, scope, state: 'xyz' }) }));
    assert.equal(answer.searchParams.get('error'), 'invalid_request');
    assert.match(answer.searchParams.get('error_description'), /PKCE/);
    assert.equal(answer.searchParams.get('state'), 'xyz');
  },
};

// keeping returns what a client of MCP asks its program to keep, and where it is kept.
function keeping() {
  const kept = {};
  return [kept, {
    redirectUrl: redirect,
    clientMetadataUrl: id || undefined,
    clientMetadata: { client_name: 'Protocol client', redirect_uris: [redirect], token_endpoint_auth_method: 'none' },
    state: () => 'xyz',
    clientInformation: () => kept.client,
    saveClientInformation: (v) => { kept.client = v; },
    tokens: () => kept.tokens,
    saveTokens: (v) => { kept.tokens = v; },
    redirectToAuthorization: (v) => { kept.visit = v; },
    saveCodeVerifier: (v) => { kept.verifier = v; },
    codeVerifier: () => kept.verifier,
    saveDiscoveryState: (v) => { kept.discovery = v; },
    discoveryState: () => kept.discovery,
  }];
}

// An agent is told the address of the MCP server alone: it signs its person in, lists the tools and uses them, and sees no
// more than they allowed. Its token is good for nothing else.
async function agent(lib) {
  const [kept, authProvider] = keeping();
  const at = (path) => [
    new lib.Client({ name: 'agent', version: '1' }),
    new lib.StreamableHTTPClientTransport(new URL(base + path), { authProvider }),
  ];
  const [first, transport] = at('/mcp');
  await assert.rejects(first.connect(transport), lib.UnauthorizedError);
  assert.equal(kept.visit.searchParams.get('resource'), base + '/mcp');
  const answer = new URL(await person({ visit: kept.visit.href }));
  await transport.finishAuth(answer.searchParams.get('code'), answer.searchParams.get('iss'));

  const [client, next] = at('/mcp');
  await client.connect(next);
  assert.equal(client.getServerVersion().name, 'slipway');
  const names = (await client.listTools()).tools.map((t) => t.name);
  for (const name of ['whoami', 'list_sites', 'deploy', 'set_env', 'create_backup']) assert.ok(names.includes(name), name);
  const use = async (name, args = {}) => {
    const result = await client.callTool({ name, arguments: args });
    return [JSON.parse(result.content[0].text), Boolean(result.isError)];
  };
  assert.deepEqual((await use('whoami'))[0].readOnly, false);
  const [{ data }, failed] = await use('list_sites');
  assert.ok(!failed && Array.isArray(data));
  assert.deepEqual((await use('get_site', { site: '../keys' }))[1], true);
  const [unknown, refused] = await use('get_site', { site: 'site_unknown' });
  assert.ok(refused && unknown.code === 'site_not_found', JSON.stringify(unknown));
  await client.close();

  const [reader, narrow] = at('/mcp?mode=read');
  await reader.connect(narrow);
  const { tools } = await reader.listTools();
  assert.ok(tools.length > 5 && tools.every((t) => t.annotations.readOnlyHint), 'an address for reading has tools that change something');
  await reader.close();
  const api = await fetch(resource + '/sites', { headers: { authorization: 'Bearer ' + kept.tokens.access_token } });
  assert.equal(api.status, 401);
}

async function protocolClient(lib) {
  const [kept, provider] = keeping();
  const hooks = (token) => fetch(resource + '/webhooks', { headers: token ? { authorization: 'Bearer ' + token } : {} });
  const refused = await hooks();
  assert.equal(refused.status, 401);
  const { resourceMetadataUrl, scope } = lib.extractWWWAuthenticateParams(refused);
  assert.equal(scope, 'webhooks:read');
  const options = { serverUrl: resource, resourceMetadataUrl, scope };
  assert.equal(await lib.auth(provider, options), 'REDIRECT');
  if (id) assert.equal(kept.client.client_id, id);
  else assert.match(kept.client.client_id, /^app_/); // it registered itself
  assert.equal(kept.visit.searchParams.get('scope'), scope);
  assert.equal(kept.visit.searchParams.get('resource'), resource);
  const answer = new URL(await person({ visit: kept.visit.href }));
  const authorizationCode = answer.searchParams.get('code');
  if (lib === mcp) {
    await assert.rejects(lib.auth(provider, { ...options, authorizationCode, iss: 'https://other.test' }), /iss/i);
  }
  const iss = answer.searchParams.get('iss');
  assert.equal(await lib.auth(provider, { ...options, authorizationCode, iss }), 'AUTHORIZED');
  const first = kept.tokens.access_token;
  assert.equal((await hooks(first)).status, 200);
  assert.equal(await lib.auth(provider, options), 'AUTHORIZED'); // it refreshes
  assert.notEqual(kept.tokens.access_token, first);
  assert.equal((await hooks(kept.tokens.access_token)).status, 200);
  await agent(lib);
}

await libraries[library]();
console.log(JSON.stringify({ done: true }));
process.exit(0);
