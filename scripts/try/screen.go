package main

import (
	"fmt"
	"path/filepath"
)

// screen says where everything is, each line good to be copied.
func (t *try) screen(s site) {
	root := filepath.Join(t.data, "root.pem")
	base := "http://" + t.listen
	line := func(name, value, remark string) {
		fmt.Printf("  %-12s %s  %s\n", name, t.paint("36", value), t.paint("2", remark))
	}
	command := func(what, text string) {
		fmt.Printf("\n  %s\n  %s\n", t.paint("2", what), text)
	}
	authorized := "-H 'Authorization: Bearer " + t.memory.Key + "'"

	fmt.Println()
	if s.URL != "" {
		line("Live site", s.URL, "your browser will ask once: the certificate is from your own authority")
	}
	line("Start page", base+"/", "")
	line("REST", base+"/api/v1", "described in /api/v1/openapi.json")
	line("Reference", base+"/docs", "")
	line("Key", t.memory.Key, "kept in "+t.path("memory.json"))
	line("Root", root, "trust this one to make the browser quiet")
	command("See your sites", "curl "+authorized+" "+base+"/api/v1/sites")
	if s.URL != "" {
		command("See the page", "curl --cacert "+root+" "+s.URL)
		command("Change "+t.path("you/hello")+", commit, and send it out", "curl -X POST "+authorized+" "+base+"/api/v1/sites/"+s.ID+"/deploy")
	}
	fmt.Printf("\n  Ctrl-C ends it; %s starts it again with everything there.\n\n", t.paint("1", "make run"))
}
