// Command versitygw is what S3 is tested against: Versity's gateway before a directory, and of it no
// more than that. The gateway's own command brings clients of other clouds and its own tests along,
// which take as long to build as the rest.
package main

import (
	"context"
	"flag"
	"log"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

func main() {
	port := flag.String("port", "", "HOST:PORT to listen on")
	access := flag.String("access", "", "access key")
	secret := flag.String("secret", "", "secret key")
	flag.Parse()
	store, err := posix.New(flag.Arg(0), meta.XattrMeta{}, posix.PosixOpts{CopyObjectThreshold: 5 << 30})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(embedgw.RunVersityGW(context.Background(), store, &embedgw.Config{
		RootUserAccess: *access, RootUserSecret: *secret, Ports: []string{*port}, Quiet: true, KeepAlive: true,
		MaxConnections: 10_000, MaxRequests: 10_000, MultipartMaxParts: 10_000,
	}))
}
