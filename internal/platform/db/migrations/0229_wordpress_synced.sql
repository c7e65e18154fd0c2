-- +goose Up

-- When a clone and its origin had the same content: at the clone, or the last push of a database between
-- them. 0: when the clone was made.
ALTER TABLE wordpress_sites ADD COLUMN synced_at BIGINT NOT NULL DEFAULT 0;
