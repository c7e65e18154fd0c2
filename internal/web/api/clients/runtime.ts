// The API client of a Slipway installation in TypeScript. It needs nothing but fetch: Node.js 18, Deno, Bun, browsers.
//
// Made by https://slipway.example.com from its OpenAPI document. Don't edit it: get it again after an upgrade.

export interface SlipwayOptions {
  /** An API key, or what returns one: an access token that is refreshed, for instance. */
  token: string | (() => string | Promise<string>);
  /** Where the installation is. Default: where this file is from. */
  baseUrl?: string;
  /** Id or slug of the team that the key must act for; otherwise calls fail with code team_mismatch. */
  team?: string;
  /** How often a call is repeated that met a rate limit or a broken connection. Default: 3. */
  retries?: number;
  /** Allows a baseUrl of plain HTTP on another machine, where others may read the token. */
  allowHttp?: boolean;
  fetch?: typeof fetch;
}

export interface CallOptions {
  signal?: AbortSignal;
  /** Repeating a POST with the same key within 24 hours has no further effect. Default: a random one per call. */
  idempotencyKey?: string;
  headers?: Record<string, string>;
}

/** An error of the API. */
export class SlipwayError extends Error {
  /** Of HTTP. */
  readonly status: number;
  /** Stable, in snake_case. */
  readonly code: string;
  /** What is allowed, or how to fix it. */
  readonly details: string | undefined;
  /** To tell the operator. */
  readonly requestId: string | undefined;
  /** The whole answer. */
  readonly body: Partial<ApiError>;

  constructor(status: number, body: Partial<ApiError>) {
    super((body.error ?? `HTTP status ${status}`) + (body.details ? `: ${body.details}` : ""));
    this.name = "SlipwayError";
    this.status = status;
    this.code = body.code ?? "";
    this.details = body.details;
    this.requestId = body.requestId;
    this.body = body;
  }
}

/** One server-sent event. */
export interface StreamEvent {
  event: string;
  id: string;
  /** A line of a log, parsed from JSON. */
  data: unknown;
}

type Query = object;

const sleep = (ms: number, signal?: AbortSignal) =>
  new Promise<void>((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    if (signal?.aborted) stop();
    signal?.addEventListener("abort", stop, { once: true });
  });

export class Slipway {
  private readonly options: SlipwayOptions;
  private readonly base: string;

  constructor(options: SlipwayOptions) {
    this.options = options;
    const base = new URL(options.baseUrl ?? "https://slipway.example.com");
    const loopback = /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(base.hostname);
    if (base.protocol !== "https:" && !loopback && !options.allowHttp) {
      throw new TypeError(`${base.origin} is not encrypted: set allowHttp to send the token to it`);
    }
    this.base = base.origin;
  }

  /** Waits until an operation has ended, and throws an error where it failed. */
  async waitForOperation(id: string, options?: CallOptions): Promise<Operation> {
    for (let wait = 500; ; wait = Math.min(wait * 1.5, 5000)) {
      const operation = await this.getOperation(id, options);
      if (operation.status === "success") return operation;
      if (operation.completedAt) throw new Error(`${operation.kind} ${operation.status}: ${operation.error ?? ""}`);
      await sleep(wait, options?.signal);
    }
  }

  /** Waits until a deployment is live, and throws an error where it failed or was canceled. */
  async waitForDeployment(id: string, options?: CallOptions): Promise<Deployment> {
    for (let wait = 500; ; wait = Math.min(wait * 1.5, 5000)) {
      const deployment = await this.getDeployment(id, options);
      if (deployment.status === "success") return deployment;
      if (deployment.completedAt) throw new Error(`Deployment ${deployment.status}: ${deployment.error ?? ""}`);
      await sleep(wait, options?.signal);
    }
  }

  private async json<T>(
    method: string,
    path: string,
    query: Query | undefined,
    body: unknown,
    options?: CallOptions,
    contentType?: string,
  ): Promise<T> {
    const response = await this.raw(method, path, query, body, options, contentType, "application/json");
    return (await response.json()) as T;
  }

  private async raw(
    method: string,
    path: string,
    query: Query | undefined,
    body: unknown,
    options: CallOptions = {},
    contentType?: string,
    accept = "*/*",
  ): Promise<Response> {
    const url = new URL(this.base + path);
    for (const [name, value] of Object.entries(query ?? {})) {
      if (value !== undefined && value !== null) url.searchParams.set(name, String(value));
    }
    if (this.options.team) url.searchParams.set("teamId", this.options.team);
    const headers: Record<string, string> = { accept, ...options.headers };
    if (method === "POST") headers["idempotency-key"] = options.idempotencyKey ?? crypto.randomUUID();
    let payload: BodyInit | undefined;
    if (contentType) {
      headers["content-type"] = contentType;
      payload = body as BodyInit;
    } else if (body !== undefined) {
      headers["content-type"] = "application/json";
      payload = JSON.stringify(body);
    }
    // a stream is gone once it was sent, and a PATCH may have been carried out
    const again = payload === undefined || typeof payload === "string" || payload instanceof Uint8Array;
    const token = this.options.token;
    for (let left = this.options.retries ?? 3; ; left--) {
      headers.authorization = `Bearer ${typeof token === "function" ? await token() : token}`;
      let response: Response;
      try {
        response = await (this.options.fetch ?? fetch)(url, {
          method,
          headers,
          body: payload ?? null,
          signal: options.signal ?? null,
          redirect: "error", // the token is for this installation alone
        });
      } catch (error) {
        if (left <= 0 || !again || method === "PATCH" || options.signal?.aborted) throw error;
        await sleep(1000, options.signal);
        continue;
      }
      if (response.ok) return response;
      const wait = Number(response.headers.get("retry-after") ?? NaN);
      if ((response.status === 429 || response.status === 503) && wait <= 60 && left > 0 && again) {
        await response.body?.cancel();
        await sleep(wait * 1000, options.signal);
        continue;
      }
      let problem: Partial<ApiError> = {};
      try {
        problem = (await response.json()) as Partial<ApiError>;
      } catch {
        // a proxy's page: the status says enough
      }
      throw new SlipwayError(response.status, problem);
    }
  }

  private async *events(path: string, query?: Query, options?: CallOptions): AsyncGenerator<StreamEvent> {
    const response = await this.raw("GET", path, query, undefined, options, undefined, "text/event-stream");
    if (!response.body) return;
    const reader = response.body.getReader();
    const decoder = new TextDecoder();
    let rest = "";
    let event = "message";
    let id = "";
    let data: string[] = [];
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        const lines = (rest + decoder.decode(value, { stream: true })).split(/\r?\n/);
        rest = lines.pop() ?? "";
        for (const line of lines) {
          if (line === "") {
            if (data.length) yield { event, id, data: JSON.parse(data.join("\n")) };
            event = "message";
            data = [];
            continue;
          }
          const [, field, text] = /^([^:]*):? ?(.*)$/.exec(line) ?? [];
          if (field === "event") event = text ?? "";
          if (field === "id") id = text ?? "";
          if (field === "data") data.push(text ?? "");
        }
      }
    } finally {
      await reader.cancel();
    }
  }

  private async *pages<T>(path: string, query: Query = {}, options?: CallOptions): AsyncGenerator<T> {
    for (let page = 1; ; page++) {
      const answer = await this.json<{ data: T[]; pagination?: { totalPages: number } | null }>(
        "GET",
        path,
        { limit: 100, ...query, page },
        undefined,
        options,
      );
      yield* answer.data;
      if (page >= (answer.pagination?.totalPages ?? 1)) return;
    }
  }
  // METHODS
}
