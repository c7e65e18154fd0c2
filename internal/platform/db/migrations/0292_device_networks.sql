-- +goose Up

-- The widest network that one customer of a provider has, from which a device asked: of IPv6 a /48. Each has few places.
ALTER TABLE oauth_devices ADD COLUMN network TEXT NOT NULL DEFAULT '';
