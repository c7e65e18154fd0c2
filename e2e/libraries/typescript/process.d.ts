// What the programs here use of Node.js.
declare const process: { env: Record<string, string | undefined> };
