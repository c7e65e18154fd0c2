// Command zitadel runs zitadel/oidc's example provider with one client, whose redirect URI is its argument. It prints
// its issuer URL when it is ready. Every user name can sign in, with the email address NAME@example.test, which is
// verified except for mallory's.
package main

import (
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
)

func main() {
	storage.RegisterClients(storage.WebClient("slipway", "a-client-secret", os.Args[1]))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	issuer := fmt.Sprintf("http://localhost:%d/", listener.Addr().(*net.TCPAddr).Port) // with a trailing slash, like in the example
	server := &http.Server{
		Handler:           exampleop.SetupServer(issuer, storage.NewStorage(anybody{}), slog.New(slog.DiscardHandler), false),
		ReadHeaderTimeout: time.Minute,
	}
	fmt.Println(issuer)
	log.Fatal(server.Serve(listener))
}

// anybody is a storage.UserStore in which every user name exists.
type anybody struct{}

func (anybody) GetUserByID(id string) *storage.User {
	name := strings.TrimPrefix(id, "id-")
	return &storage.User{
		ID: "id-" + name, Username: name, Password: "any", Email: name + "@example.test", EmailVerified: name != "mallory",
	}
}

func (a anybody) GetUserByUsername(name string) *storage.User { return a.GetUserByID("id-" + name) }

func (anybody) ExampleClientID() string { return storage.ServiceUserID }
