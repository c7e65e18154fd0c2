package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"
)

// table is the result for a terminal.
func (b *bench) table() string {
	var out bytes.Buffer
	t := tabwriter.NewWriter(&out, 0, 4, 3, ' ', 0)
	fmt.Fprintln(t, "what\tmeasured\tyardstick\tratio\tgoal")
	for _, r := range b.rows {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", r.what, r.value, r.yardstick, r.ratio, r.goal)
	}
	t.Flush()
	return out.String()
}

// document is the result for docs/benchmarks.md.
func (b *bench) document() string {
	var out strings.Builder
	fmt.Fprintf(&out, `# Benchmarks

Made by `+"`make bench DOC=1`"+` on %s at commit %s: %d cores (%s), %s of memory, %s, %s.
Client, Git host, webhook receiver and service share the machine. A ratio is ours divided by the yardstick, both measured in the same run.
`, time.Now().UTC().Format(time.DateOnly), commit(), runtime.NumCPU(), processor(), memory(), runtime.GOOS, runtime.Version())
	part := ""
	for _, r := range b.rows {
		if r.part != part {
			part = r.part
			fmt.Fprintf(&out, "\n## %s\n\n| what | measured | yardstick | ratio | goal |\n|---|---|---|---|---|\n", part)
		}
		fmt.Fprintf(&out, "| %s | %s | %s | %s | %s |\n", r.what, r.value, cmp.Or(r.yardstick, "–"), cmp.Or(r.ratio, "–"), cmp.Or(r.goal, "–"))
	}
	out.WriteString(`
What the lines mean:

- **deploy**: from sending the POST to the first answer of the site that shows the new content, asked for without pause; the median. The yardstick is
  ` + "`git clone --depth 1`" + ` of the same repository from the same host, then a copy of every file with an fsync of each and of each folder: the least that
  brings the same bytes safely to disk. Ours also detects, hashes, compresses twice, writes the database and switches over.
- **Files in S3**: the object store is the Versity gateway over a directory of the same machine; the yardstick is our store in a directory. One read for the
  first time is fetched and copied to the local disk; read again, it comes from there.
- **GET**: four clients over kept connections, random ids, while the database holds the sites. The yardstick is ` + "`GET /healthz`" + ` of the same process
  under the same load: what HTTP alone costs here. The sites were written straight into the database.
- **webhook**: from reading the answer of the request that caused the event to the receiver having the first attempt in hand. *At 1,000 deliveries/s*: 50 changes a second, 20 webhooks,
  from the moment that the event itself tells, which is before the commit. *Pending at start*: from the first to the last arrival, in the database's durable setting, beside a sender
  with as many connections that signs and keeps nothing, measured before and after. The receiver takes a good part of the machine. 800/s is what Svix sells as the limit of its
  plan Professional (svix.com/pricing). PostgreSQL: ` + "`go run ./scripts/withpostgres go run ./bench -only deliveries,rate,hanging`" + `.
- **fairness**: two clients of one user post arrays of 1,000 variables, 940 kB each, without a pause, and another user posts one variable, 100 times in turn.
- **memory**: resident set of the process (VmRSS). The live sites were written straight into the database; each answers with one real release.
- **start**: from starting the process to the first 200 of ` + "`/readyz`" + `; the median of five.
- **files**: h2load on one thread asks for one file that doesn't compress, over 16 connections with 16 streams each (HTTP/2) or 64 connections (HTTP/1.1); all servers
  in turn, five rounds, the median of each figure and of the ratios of each round. *CPU* is what the kernel charged the server's processes with, per request; in the ratio,
  theirs divided by ours. nginx sends from its cache of open files with a worker per core; Caddy is built from ` + "`bench/caddy`" + `, without its access log. Random hosts: 512
  connections over HTTP/1.1, each to a host of its own, beside as many to one host, in the same process. Idle connections have had one answer and wait.
- **handshakes**: TLS 1.3 with ECDSA P-256 certificates, no request after it, four clients at a time, HTTP/2 and HTTP/1.1 on offer; both servers in turn,
  a second each, five rounds, medians of the ratios. The client takes more than a server does and shares its cores, so the first line of each pair is of the
  whole machine; *by server CPU* divides by the CPU time that the server's processes used. A name such as X25519 is the key exchange that was agreed on:
  browsers offer X25519MLKEM768, which holds against quantum computers and costs more; a server that can't falls back to X25519.`)
	if b.nginx != "" {
		fmt.Fprintf(&out, " The yardstick is %s,\n  with tickets, a shared session cache and as many workers as cores.", b.nginx)
	}
	out.WriteString(`
- **memory, certificates**: what the resident set grows by when every one of as many hosts is visited for the first time; as many visits to one host come
  before. Those of public authorities are read from the database, those of the local authority made on the spot. Then each host is visited again.
- **dashboard pages**: one client on loopback that is signed in, until the last byte; the weight is the HTML as sent. Beside the sites the account has one
  site with 200 deployments, a log of 5,000 lines, 25 domains, 200 variables and 100 deploy hooks, 50 webhooks, one of them with 500 deliveries, and
  the installation 200 more users.
`)
	return out.String()
}

func commit() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// field returns the first value of a key in a file of "key: value" lines.
func field(file, key string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

func processor() string { return cmp.Or(field("/proc/cpuinfo", "model name"), runtime.GOARCH) }

func memory() string {
	var kb int
	fmt.Sscanf(field("/proc/meminfo", "MemTotal"), "%d", &kb)
	return fmt.Sprintf("%.0f GB", float64(kb)/1e6)
}
