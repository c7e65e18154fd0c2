-- +goose Up

-- Answers are counted per owner: whoever's they are, not which key or hook they were kept for.
ALTER TABLE idempotent_answers ADD COLUMN owner_id TEXT NOT NULL DEFAULT '';
ALTER TABLE idempotent_answers ADD COLUMN size BIGINT NOT NULL DEFAULT 0;    -- bytes of answer; 0: dropped, or from before this migration
CREATE INDEX idempotent_answers_owner ON idempotent_answers (owner_id, created_at);
CREATE INDEX idempotent_answers_large ON idempotent_answers (owner_id, created_at) WHERE size > 0;

-- Written by package idempotency: how much is stored for an owner, in step with idempotent_answers.
CREATE TABLE idempotency_usage (
  owner_id TEXT PRIMARY KEY,
  answers  BIGINT NOT NULL,
  bytes    BIGINT NOT NULL
);
