module slipway/e2e/libraries

go 1.26.0

require github.com/svix/svix-webhooks v1.44.0

require gopkg.in/validator.v2 v2.0.1 // indirect
