// Package crypto defines the names that witnessctl uses in `add-sigsum-log`.
package crypto

import "crypto/sha256"

// PublicKeySize is the number of bytes of an Ed25519 public key.
const PublicKeySize = 32

// PublicKey is an Ed25519 public key.
type PublicKey [PublicKeySize]byte

// HashBytes returns the SHA-256 hash of b.
func HashBytes(b []byte) [sha256.Size]byte {
	return sha256.Sum256(b)
}
