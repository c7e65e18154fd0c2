//go:build packages

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/miekg/dns"

	"slipway/internal/edge/certs/acmetest"
	"slipway/internal/platform/blob/s3test"
	"slipway/internal/tenant/domain/dnstest"
	"slipway/internal/tenant/mail/mailtest"
)

// world names the variable that tells TestWorld that it runs on a machine of the test below. Its value is the folder
// for the files that TestWorld offers.
const world = "SLIPWAY_TEST_WORLD"

// TestWorld runs what surrounds a server: a DNS server, a certificate authority (Pebble, which visits the server at
// ports 80 and 443), and a mail server. It ends with the machine.
func TestWorld(t *testing.T) {
	dir := os.Getenv(world)
	if dir == "" {
		return // it has nothing to test by itself: m.server starts it
	}
	zone := dnstest.New(t)
	zone.Set("slipway.example.com", "A 127.0.0.1")
	zone.Set("*.sites.example.net", "A 127.0.0.1")
	zone.Set("www.harbor.example", "CNAME harbor.sites.example.net.")
	for _, network := range []string{"udp", "tcp"} {
		s := &dns.Server{Addr: "127.0.0.1:53", Net: network, Handler: zone}
		go func() { t.Error(s.ListenAndServe()) }()
	}
	authority := acmetest.New(t, acmetest.Config{HTTP01: 80, TLSALPN01: 443, Resolver: zone.Addr})
	mails := mailtest.New(t, mailtest.Config{Addr: "127.0.0.1:587", StartTLS: true})
	err := errors.Join(
		os.WriteFile(filepath.Join(dir, "world.crt"), authority.PEM(), 0o644),
		os.WriteFile(filepath.Join(dir, "root.pem"), authority.RootPEM(), 0o644),
		os.WriteFile(filepath.Join(dir, "directory"), []byte(authority.Directory()), 0o644), // last: its readers need the others too
	)
	if err != nil {
		t.Fatal(err)
	}
	for range time.Tick(100 * time.Millisecond) { // each mail becomes a file
		for i, m := range mails.All() {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("mail-%d", i+1)), []byte(m.To+"\n"+m.Subject+"\n"+m.Text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// server sets up a server as an operator does for others: names in DNS, certificates of a public authority, a mail
// server, backups in a bucket, a site from a repository, and a custom domain. The differences to docs/install.md: the
// addresses of the authority and of the repository's host, and that the service is started by hand without systemd.
func (m machines) server(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	store, err := s3test.Program()
	if err != nil {
		t.Fatal(err)
	}
	for name, from := range map[string]string{"world.test": self, "store": store} {
		text, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(m.kept, name), text, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	begun := time.Now()
	out := m.run(t, "server", `
mkdir /mnt/world
`+world+`=/mnt/world /mnt/world.test -test.run '^TestWorld$' -test.timeout 15m >/mnt/world/log 2>&1 &
timeout 120 sh -c 'until [ -s /mnt/world/directory ]; do sleep 0.1; done' || { cat /mnt/world/log; exit 1; }
echo nameserver 127.0.0.1 >/etc/resolv.conf
cp /mnt/world/world.crt /usr/local/share/ca-certificates/
update-ca-certificates
export AWS_ACCESS_KEY_ID=`+s3test.AccessKey+` AWS_SECRET_ACCESS_KEY=`+s3test.SecretKey+`
mkdir -p /srv/buckets/backups
/mnt/store --port 127.0.0.1:9000 --access $AWS_ACCESS_KEY_ID --secret $AWS_SECRET_ACCESS_KEY /srv/buckets >/dev/null 2>&1 &

sh install.sh
slipway setup --yes --site-domain sites.example.net --base-url https://slipway.example.com --email you@example.com \
	--smtp 127.0.0.1:587 --backup-to 's3://backups?endpoint=http://127.0.0.1:9000' >/mnt/setup.txt
cat /mnt/setup.txt
sed -i "s|https://acme-v02[^\"]*|$(cat /mnt/world/directory)|" /etc/slipway/server.toml
grep $(cat /mnt/world/directory) /etc/slipway/server.toml
echo 'git-host = ["git.example=file:///srv/git"]' >>/etc/slipway/server.toml
export SLIPWAY_CONFIG=/etc/slipway/server.toml CURL_CA_BUNDLE=/mnt/world/root.pem SLIPWAY_CA_FILE=/mnt/world/root.pem
`+serve+`
slipway doctor | tee /mnt/doctor.txt
if grep '^missing' /mnt/doctor.txt; then exit 1; fi
page() { timeout 120 sh -c "until curl -fsS $1 >/mnt/page; do sleep 0.5; done" || { cat /var/log/slipway.log; exit 1; }; cat /mnt/page; }
link=$(grep -o 'https://slipway.example.com/setup/.*' /mnt/setup.txt)
page $link | grep -i password
curl -fsS -o /dev/null -H 'Origin: https://slipway.example.com' -d 'password=correct horse battery staple 9' $link

mkdir -p /srv/git/acme && git init -q --bare -b main /srv/git/acme/harbor.git
git clone -q /srv/git/acme/harbor.git /root/harbor && cd /root/harbor
echo '<h1>It floats.</h1>' >index.html
git add . && git -c user.name=You -c user.email=you@example.com commit -q -m Launch && git push -q origin HEAD:main
export SLIPWAY_SERVER=https://slipway.example.com SLIPWAY_TOKEN=$(slipway key create --user you@example.com --name first)
site=$(curl -fsS -H "Authorization: Bearer $SLIPWAY_TOKEN" -H 'Content-Type: application/json' \
	-d '{"name": "harbor", "type": "static", "repository": "git.example/acme/harbor"}' $SLIPWAY_SERVER/api/v1/sites)
slug=$(echo "$site" | sed 's/.*"slug":"\([^"]*\)".*/\1/')
page https://$slug.sites.example.net/ | grep floats

slipway domains add www.harbor.example --site $slug
slipway domains verify www.harbor.example --site $slug
page https://www.harbor.example/ | grep floats

curl -fsS -o /dev/null -H 'Origin: https://slipway.example.com' -d email=you@example.com https://slipway.example.com/forgot
timeout 60 sh -c 'until grep https://slipway.example.com/ /mnt/world/mail-*; do sleep 0.2; done' || { cat /var/log/slipway.log; exit 1; }
slipway backup create
slipway backup verify --from 's3://backups?endpoint=http://127.0.0.1:9000' --key /var/lib/slipway/secrets.key
`)
	t.Logf("%s\nfrom nothing to a server in %s", out, time.Since(begun).Round(time.Second))
}
