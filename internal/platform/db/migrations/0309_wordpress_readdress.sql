-- +goose Up

-- readdress_at is when rewriting a WordPress site's addresses may begin again after it failed.
ALTER TABLE wordpress_sites ADD COLUMN readdress_at BIGINT NOT NULL DEFAULT 0;
