-- +goose Up

-- readdress_wait is the last wait in milliseconds after rewriting a WordPress site's addresses failed: the next one is twice as long.
ALTER TABLE wordpress_sites ADD COLUMN readdress_wait BIGINT NOT NULL DEFAULT 0;
