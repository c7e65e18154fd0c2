package nodes

import (
	"testing"
)

// A node is restarted without being drained first. It hands its program over to the other node, whose visitors get no
// errors. Then the other node is restarted the same way.
func TestNodeEndsUnderLoad(t *testing.T) {
	i := related(t)
	a, b := i.nodes[0], i.nodes[1]
	for _, w := range i.nodes {
		w.Flags = append(w.Flags, "--drain-delay", "10s")
	}
	i.start(a, b)
	i.commit("talk", talker)
	site := i.site(a, "talk")
	i.until("it is deployed", func() bool {
		return i.count(`SELECT count(*) FROM deployments WHERE site_id = $1 AND status = 'success'`, site) == 1
	})
	ends, stays := i.stays(site)
	for range 2 {
		if status, body := i.visit(ends, "talk", "/"); status != 200 {
			t.Fatalf("%d %s", status, body)
		}
		end := i.visitors("talk", "/", stays)
		if err := ends.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if i.count(`SELECT count(*) FROM placements WHERE site_id = $1 AND node = $2`, site, i.id(stays)) != 1 {
			t.Error("the node that stays doesn't have it")
		}
		i.start(ends)
		end("while a node was restarted")
		ends, stays = stays, ends
	}
}
