#!/bin/sh
# cert-manager-renew-before.sh: when cert-manager renews a certificate whose renewBefore does not fit its lifetime.
#
#	sh findings/cert-manager-renew-before.sh
#
# A renewBefore that is equal to or longer than the lifetime is ignored without an error, and the certificate is renewed after two thirds of its lifetime, as
# if the field were absent. This happens when an issuer signs for a shorter time than the Certificate asks for, because then the actual lifetime counts and not
# spec.duration. Windows of `renewal` only move the renewal later than renewBefore asks for, up to the length of the window behind the certificate's end;
# if none begins until then, the time is an error. `renewal.policy: Disabled` gives no time.
# It needs Go and its module proxy. It ends with 1 if this changes.
set -eu
behaviour=$(sed -n '/^#\t/,/^# It needs/{/^#\t/d;/^# It needs/d;s/^# //p;}' "$0")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >main.go <<'EOF'
package main

import (
	"fmt"
	"os"
	"time"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/cert-manager/cert-manager/pkg/util/pki"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func main() {
	from := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	daily := func(cron string) *certmanager.CertificateRenewal {
		return &certmanager.CertificateRenewal{
			Policy:  certmanager.CertificateRenewalPolicyRenewBefore,
			Windows: []certmanager.CertificateRenewalWindows{{Cron: cron, WindowDuration: &metav1.Duration{Duration: time.Hour}}},
		}
	}
	changed := false
	for _, c := range []struct {
		renewBefore time.Duration
		renewal     *certmanager.CertificateRenewal
		want        string
	}{
		{4 * time.Hour, nil, "20h0m0s"},
		{24 * time.Hour, nil, "16h0m0s"},
		{48 * time.Hour, nil, "16h0m0s"},
		{4 * time.Hour, daily("30 10 * * *"), "22h30m0s"},
		{4 * time.Hour, daily("30 12 * * *"), "24h30m0s"},
		{4 * time.Hour, daily("0 2 * * *"), "an error"},
		{4 * time.Hour, &certmanager.CertificateRenewal{Policy: certmanager.CertificateRenewalPolicyDisabled}, "never"},
	} {
		at, err := pki.RenewalTime(from, from.Add(24*time.Hour), &metav1.Duration{Duration: c.renewBefore}, nil, c.renewal)
		got := "never"
		switch {
		case err != nil:
			got = "an error"
		case at != nil:
			got = at.Sub(from).String()
		}
		when := "none"
		if c.renewal != nil {
			when = string(c.renewal.Policy)
			for _, w := range c.renewal.Windows {
				when += ", one hour from " + w.Cron
			}
		}
		fmt.Printf("lifetime 24h from 12:00, renewBefore %s, renewal %s: after %s\n", c.renewBefore, when, got)
		changed = changed || got != c.want
	}
	if changed {
		fmt.Println("this has changed")
		os.Exit(1)
	}
}
EOF
cat >go.mod <<'EOF'
module finding

go 1.26

require (
	github.com/cert-manager/cert-manager v1.21.2
	k8s.io/apimachinery v0.37.2
)
EOF
unset GOFLAGS
GOWORK=off go mod tidy >tidy.log 2>&1 || { cat tidy.log; exit 2; }
echo "version: github.com/cert-manager/cert-manager v1.21.2, k8s.io/apimachinery v0.37.2"
echo "behaviour: $behaviour"
echo "output:"
GOWORK=off go run .
