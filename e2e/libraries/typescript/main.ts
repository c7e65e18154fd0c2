// Publishes a folder and looks at what came of it, with the client that the installation made.
import { Slipway, SlipwayError, type UpdateSiteIn } from "./slipway.ts";

const archive = Uint8Array.from(atob(process.env.ARCHIVE ?? ""), (c) => c.charCodeAt(0));
const slipway = new Slipway({ token: () => process.env.SLIPWAY_TOKEN ?? "" });

const made = await slipway.createSite({ name: "Harbor", type: "static", source: "upload" });
const started = await slipway.deployArchive(made.data.id, archive, "application/zip");
const live = await slipway.waitForDeployment(started.deploymentId);

// an editor completes the words of an enum that this file knows; later versions may send others
const status: string = live.status;

const change: UpdateSiteIn = { name: "Harbor & Søn", tags: ["shop"] };
const site = await slipway.updateSite(made.data.id, change);

const names: string[] = [];
for (let i = 0; i < 101; i++) await slipway.setEnv(site.id, { key: `KEY_${i}`, value: "ä/?&=" });
for await (const v of slipway.iterateEnv(site.id)) names.push(`${v.key}=${v.value}`);

const lines: unknown[] = [];
for await (const event of slipway.streamDeploymentLogs(live.id)) lines.push(event.data);

const failure = await slipway.getSite("site_of/nobody?").then(
  () => "none",
  (e: unknown) => (e instanceof SlipwayError ? `${e.status} ${e.code}` : String(e)),
);
const key = crypto.randomUUID();
const first = await slipway.createHook(site.id, { name: "CI" }, { idempotencyKey: key });
const again = await slipway.createHook(site.id, { name: "CI" }, { idempotencyKey: key });

let plain = "allowed";
try {
  new Slipway({ token: "t", baseUrl: "http://slipway.example.com" });
} catch {
  plain = "refused";
}
console.log(
  JSON.stringify({
    url: made.data.url, status, name: site.name, tags: site.tags, env: new Set(names).size, last: names.includes("KEY_100=ä/?&="),
    lines: lines.length > 0, failure, once: first.id === again.id, plain,
  }),
);
