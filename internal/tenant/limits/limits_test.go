package limits_test

import (
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/limits"
)

func TestParseLimits(t *testing.T) {
	t.Parallel()
	got, err := limits.Parse(`
		[defaults]
		sites = 50
		deployments.pending = 20
		[users."Ada@Example.com"]
		sites = "unlimited"
		"deployments.pending" = 0`)
	ada := got.Users["ada@example.com"]
	if err != nil || got.Defaults[limits.Sites] != 50 || got.Defaults[limits.Deployments] != 20 ||
		ada[limits.Sites] != limits.Unlimited ||
		ada[limits.Deployments] != 0 ||
		len(ada) != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	got, err = limits.Parse(
		"[defaults]\nstorage.bytes = \"50 GiB\"\nbandwidth.bytes = \"1TiB\"\nbandwidth.throttle = \"32 KiB\"\ncaches.bytes = 1000\nbuild.minutes = 60",
	)
	if d := got.Defaults; err != nil || d[limits.Storage] != 50<<30 || d[limits.Bandwidth] != 1<<40 || d[limits.Throttle] != 32<<10 ||
		d[limits.Caches] != 1000 ||
		d[limits.BuildMinutes] != 60 {
		t.Errorf("%+v, %v", got, err)
	}
	for text, want := range map[string]string{
		"[defaults]\nsitez = 1":                         `unknown limit "sitez"; limits are backups.bytes, bandwidth.bytes, bandwidth.throttle, build.minutes, caches.bytes, databases, deployments.pending`,
		"[defaults]\nsites = -1":                        "whole number",
		"[defaults]\nsites = 1.5":                       "whole number",
		"[defaults]\nsites = \"many\"":                  "whole number",
		"sites = 1":                                     `unknown entry "sites"`,
		"[users.ada]\nsites = 1":                        "quotation marks",
		"[users.\"a@b.test\"]\nstorage = 1":             `users.a@b.test: unknown limit "storage"`,
		"[defaults]\nsites.x = 1":                       `unknown limit "sites.x"`,
		"[defaults":                                     "toml",
		"[defaults]\nsites = \"5 GiB\"":                 "whole number of at least 0, or",
		"[defaults]\nbandwidth.throttle = 100":          "must be 0, which pauses sites, or 8192 to 16777216 bytes per second",
		"[teams.a]\nbandwidth.throttle = \"unlimited\"": "teams.a: bandwidth.throttle must be 0",
		"[defaults]\nstorage.bytes = \"5 GB\"":          "a size such as",
		"[defaults]\nstorage.bytes = \"-1 GiB\"":        "a size such as",
		"[defaults]\nstorage.bytes = \"999999999 TiB\"": "a size such as",
	} {
		if _, err := limits.Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// The error message of each reached limit is readable.
func TestLimitWords(t *testing.T) {
	t.Parallel()
	for u, want := range map[limits.Use]string{
		{
			Name:  limits.Sites,
			Limit: 5000,
			Used:  5000,
		}: "this account can have 5000 sites and has 5000; delete some that are not used, or ask the operator for more",
		{
			Name:  limits.Storage,
			Limit: 10 << 30,
			Used:  10<<30 - 1,
		}: "this account can store 10 GiB and stores 9.9 GiB; delete sites that are not used, or ask the operator for more",
		{
			Name:   limits.BuildMinutes,
			Limit:  60,
			Used:   61,
			Window: limits.MonthOf(db.Now()),
		}: "this account can use 60 build minutes and has used 61; it starts at zero with the next calendar month, or ask the operator for more",
		{
			Name:   limits.BuildMinutes,
			Limit:  60,
			Used:   61,
			Window: limits.Window{From: db.At(time.Date(2027, 1, 31, 9, 0, 0, 0, time.UTC)), To: db.At(time.Date(2027, 2, 28, 9, 0, 0, 0, time.UTC))},
		}: "this account can use 60 build minutes and has used 61; it starts at zero on 28 February 2027, 09:00 UTC, or ask the operator for more",
	} {
		if f := fault.As(u.Reached()); f == nil || f.Details != want || f.Limit.Limit != u.Limit || f.Limit.Current != u.Used ||
			f.Limit.Name != string(u.Name) {
			t.Errorf("%+v: %s", f, f.Details)
		}
	}
	u := limits.Use{Name: limits.Env, Limit: limits.Unlimited, Used: 1_234_567}
	if u.Amount() != "1,234,567" || u.Most() != "Unlimited" || u.Name.Title() != "Environment variables" || u.Left() != limits.Unlimited {
		t.Errorf("%s of %s %s", u.Amount(), u.Most(), u.Name.Title())
	}
	if m := limits.Month(db.At(time.Date(2026, 12, 31, 23, 59, 59, 0, time.UTC))); m != 202612 {
		t.Error(m)
	}
}
