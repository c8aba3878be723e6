package main

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// rootCertificates returns the certificate authorities of the image, for a store or a peer with a
// public certificate. go.mod pins them.
func rootCertificates() ([]byte, error) {
	var text bytes.Buffer
	text.WriteString("# Certificate authorities of Mozilla's NSS, under the Mozilla Public License 2.0\n" +
		"# (https://mozilla.org/MPL/2.0), from the Go module golang.org/x/crypto/x509roots/fallback.\n")
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue // trusted up to a date only, which a file of certificates cannot say
		}
		certificate, err := x509.ParseCertificate(root.Certificate)
		if err != nil {
			return nil, fmt.Errorf("root certificates: %w", err)
		}
		fmt.Fprintf(&text, "\n# %s\n", certificate.Subject)
		if err := pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
	}
	return text.Bytes(), nil
}
