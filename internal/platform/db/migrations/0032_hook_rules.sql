-- +goose Up

ALTER TABLE deploy_hooks ADD COLUMN title TEXT NOT NULL DEFAULT '';             -- of its deployments, where the caller gives none
ALTER TABLE deploy_hooks ADD COLUMN clear_cache BOOLEAN NOT NULL DEFAULT FALSE; -- always build as if for the first time
ALTER TABLE deploy_hooks ADD COLUMN secret TEXT NOT NULL DEFAULT '';            -- sealed: keys the HMAC that callers must send; empty: none
ALTER TABLE deploy_hooks ADD COLUMN addresses TEXT NOT NULL DEFAULT '';         -- CIDRs that may call, separated by spaces; empty: any
ALTER TABLE deploy_hooks ADD COLUMN expires_at BIGINT NOT NULL DEFAULT 0;       -- 0: never
ALTER TABLE deploy_hooks ADD COLUMN per_minute BIGINT NOT NULL DEFAULT 0;       -- calls; 0: as many as the installation allows
ALTER TABLE deploy_hooks ADD COLUMN per_day BIGINT NOT NULL DEFAULT 0;          -- calls; 0: the default
ALTER TABLE deploy_hooks ADD COLUMN minute_at BIGINT NOT NULL DEFAULT 0;        -- when the counted minute began
ALTER TABLE deploy_hooks ADD COLUMN minute_calls BIGINT NOT NULL DEFAULT 0;
ALTER TABLE deploy_hooks ADD COLUMN day_at BIGINT NOT NULL DEFAULT 0;           -- when the counted day (UTC) began
ALTER TABLE deploy_hooks ADD COLUMN day_calls BIGINT NOT NULL DEFAULT 0;

ALTER TABLE deployments ADD COLUMN hops BIGINT NOT NULL DEFAULT 0;              -- webhooks and deploy hooks that led to it
ALTER TABLE deployments ADD COLUMN hook_body TEXT NOT NULL DEFAULT '';          -- sealed by package site: what the deploy hook's caller sent
