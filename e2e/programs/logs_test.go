package programs

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// follow follows the log of the site's program, after the line `last` or from now on, and calls f with each line's
// number and text until f returns true.
func (s appSite) follow(last string, f func(n, text string) (enough bool)) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 3*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", "http://"+s.Listen+"/api/v1/sites/"+s.ID+"/logs?process=web&tail=1", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.key)
	req.Header.Set("Accept", "text/event-stream")
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		s.t.Fatalf("follow: %s", resp.Status)
	}
	n := ""
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "id":
			n = value
		case "data":
			var line struct{ Message string }
			if err := json.Unmarshal([]byte(value), &line); err != nil {
				s.t.Fatal(err)
			}
			if f(n, line.Message) {
				return
			}
		}
	}
	s.t.Fatalf("the log ended after line %s", n)
}

// reads checks that the log of a running program can be followed, resumed and searched.
func (s appSite) reads() {
	s.t.Helper()
	visit := func(path string) {
		if text, err := s.visit("GET", path, ""); err != nil || text != "four got 0" {
			s.t.Errorf("%s: %q, %v", path, text, err)
		}
	}
	began := time.Now()
	visit("/a")
	s.until("the first line", func() (bool, error) {
		text := s.runtimeLog("web")
		return strings.Contains(text, "visit of /a"), fmt.Errorf("%s", text)
	})
	last, heard := "", ""
	s.follow("", func(n, text string) bool {
		if text == "visit of /a" { // the newest line when following starts; later ones arrive as they are printed
			visit("/b")
		}
		last, heard = n, heard+text+"\n"
		return strings.HasSuffix(text, "/b")
	})
	visit("/c") // while nothing follows the log
	visit("/bad")
	s.follow(last, func(n, text string) bool {
		if text == "visit of /bad" {
			visit("/d")
		}
		heard += text + "\n"
		return strings.HasSuffix(text, "/d")
	})
	if want := "visit of /a\nvisit of /b\nvisit of /c\nvisit of /bad\nvisit of /d\n"; heard != want {
		s.t.Errorf("the followed log has %q, want %q", heard, want)
	}
	for query, want := range map[string]string{
		"tail=1":                     "/d",
		"search=VISIT+OF+/c":         "/c",
		"stream=stderr&search=visit": "/bad",
		"level=warn&search=visit":    "/bad",
		"search=visit&level=error":   "",
		"since=" + url.QueryEscape(began.Add(time.Hour).Format(time.RFC3339)): "",
		"since=90m&search=visit": "/a /b /c /bad /d",
	} {
		var l struct{ Logs []struct{ Message string } }
		s.call("GET", "/sites/"+s.ID+"/logs?process=web&"+query, nil, &l)
		var got []string
		for _, line := range l.Logs {
			got = append(got, strings.TrimPrefix(line.Message, "visit of "))
		}
		if strings.Join(got, " ") != want {
			s.t.Errorf("%s finds %q, want %q", query, got, want)
		}
	}
}
