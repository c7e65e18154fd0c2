-- +goose Up

-- Written by package backup: how the backups of the whole installation go. It has one row, whose id is 1.
CREATE TABLE installation_backup (
  id           BIGINT PRIMARY KEY,
  every        BIGINT NOT NULL DEFAULT 0, -- seconds from one to the next; 0: by hand alone
  since        BIGINT NOT NULL DEFAULT 0, -- when that was set
  succeeded_at BIGINT NOT NULL DEFAULT 0,
  proven_at    BIGINT NOT NULL DEFAULT 0, -- when all that the newest holds was last known to be readable
  failed_at    BIGINT NOT NULL DEFAULT 0,
  error        TEXT NOT NULL DEFAULT '',  -- of the last failure
  damaged      TEXT NOT NULL DEFAULT '',  -- ids of backups that need a missing or damaged object, with commas
  told_at      BIGINT NOT NULL DEFAULT 0  -- when operators were told of a problem; 0: there was none since
);
