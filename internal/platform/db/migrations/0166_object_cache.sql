-- +goose Up

-- Written by package wordpress: see 0081.
ALTER TABLE wordpress_sites ADD COLUMN object_cache BOOLEAN NOT NULL DEFAULT FALSE; -- whether a Redis runs beside its PHP
