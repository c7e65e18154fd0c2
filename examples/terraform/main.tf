terraform {
  required_version = ">= 1.11"
  required_providers {
    slipway = {
      source = "slipway.internal/slipway/slipway"
    }
  }
}

provider "slipway" {} # SLIPWAY_SERVER and SLIPWAY_TOKEN name the installation and an API key

resource "slipway_site" "harbor" {
  name                = "Harbor"
  deletion_protection = false
}

resource "slipway_deployment" "harbor" {
  site_id      = slipway_site.harbor.id
  directory    = "${path.module}/site"
  content_hash = sha1(join("", [for f in fileset("${path.module}/site", "**") : filesha1("${path.module}/site/${f}")]))
  prebuilt     = true
}

output "address" {
  value = slipway_site.harbor.url
}
