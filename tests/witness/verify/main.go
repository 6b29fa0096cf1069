// Verify verifies a proof of a record with torchwood: verify POLICY BUNDLE
//
// POLICY is a file of c2sp.org/tlog-policy. BUNDLE is a file of c2sp.org/tlog-proof whose extra data are the record.
package main

import (
	"fmt"
	"log"
	"os"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/tlog"
)

func main() {
	log.SetFlags(0)
	if err := verify(os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

func verify(policyFile, bundleFile string) error {
	text, err := os.ReadFile(policyFile)
	if err != nil {
		return err
	}
	policy, err := torchwood.ParsePolicy(text)
	if err != nil {
		return fmt.Errorf("%s: %w", policyFile, err)
	}
	bundle, err := os.ReadFile(bundleFile)
	if err != nil {
		return err
	}
	record, err := torchwood.ProofExtraData(bundle)
	if err != nil {
		return fmt.Errorf("%s: %w", bundleFile, err)
	}
	if err := torchwood.VerifyProof(policy, tlog.RecordHash(record), bundle); err != nil {
		return fmt.Errorf("%s: %w", bundleFile, err)
	}
	return nil
}
