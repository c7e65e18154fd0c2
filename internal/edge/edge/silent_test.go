package edge

import (
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/wait"
)

// An edge whose PostgreSQL connections stop responding, as after a failover, opens new ones and serves the current
// release within seconds.
func TestSilentConnections(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t)
	through, gate := dbtest.Through(t, url)
	var direct *db.DB
	w := startOn(t, url, func(c *Config) { direct, c.DB = c.DB, dbtest.Open(t, through) })
	w.live("s1", "blog", stateLive, w.publish(map[string]string{"index.html": "first"}))
	w.get("https://blog.sites.test/").want(t, 200, "first")
	second := w.publish(map[string]string{"index.html": "second"})
	gate.Silence(false)
	err := direct.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `UPDATE live SET release = $1, version = version + 1`, second)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	wait.Until(t, "the second release is served", func() bool { return w.get("https://blog.sites.test/").body == "second" })
	if took := time.Since(begun); took > answerTime {
		t.Errorf("it took %s", took)
	}
}

// answerTime caps how long the edge may wait on a connection that doesn't respond.
const answerTime = 9 * time.Second
