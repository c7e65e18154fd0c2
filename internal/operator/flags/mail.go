package flags

import (
	"os"

	"slipway/internal/operator/config"
)

// Mail names the mail server. There is no flag for the password: the command line can
// be read by every user of the machine.
type Mail struct {
	SMTP             string `name:"smtp" help:"SMTP server for password resets, invites, notifications and WordPress mail. Without it no email is sent." placeholder:"HOST:PORT"`
	SMTPUser         string `name:"smtp-user" help:"SMTP user name." placeholder:"NAME"`
	SMTPPasswordFile string `name:"smtp-password-file" help:"File with the SMTP password. Alternatively set SLIPWAY_SMTP_PASSWORD." type:"path" placeholder:"FILE"`
	SMTPFrom         string `name:"smtp-from" help:"Sender of emails, with or without a display name." placeholder:"ADDRESS"`
	SMTPTLS          string `name:"smtp-tls" help:"auto, implicit, starttls or off. auto is implicit on port 465, off on loopback, else STARTTLS." default:"auto" enum:"auto,implicit,starttls,off"`
}

// Settings returns the mail server.
func (m Mail) Settings() config.SMTP {
	password, _ := os.LookupEnv("SLIPWAY_SMTP_PASSWORD")
	return config.SMTP{
		Addr:         m.SMTP,
		User:         m.SMTPUser,
		Password:     password,
		PasswordFile: m.SMTPPasswordFile,
		From:         m.SMTPFrom,
		TLS:          m.SMTPTLS,
	}
}
