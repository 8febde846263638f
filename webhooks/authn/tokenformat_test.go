package authn_test

import (
	"crypto/sha256"
	"encoding/hex"
	"hash/crc32"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

// seed is the random part of the tokens of these tests, told apart by one byte.
func seed(b byte) [25]byte {
	var random [25]byte
	for i := range random {
		random[i] = b + byte(i)
	}
	return random
}

// goldenToken pins the format: tokens that were issued must stay readable.
const goldenToken = "gatehouse_ci_aaaqeayeaudaocajbifqydiob4ibceqtcqkrmfyyxyccrrq"

func TestNewTokenText(t *testing.T) {
	text, hash := authn.NewToken("ci", seed(0))
	if text != goldenToken {
		t.Errorf("NewToken: got %q, want %q", text, goldenToken)
	}
	if sum := sha256.Sum256([]byte(goldenToken)); hash != hex.EncodeToString(sum[:]) {
		t.Errorf("hash %q is not the SHA-256 of the text", hash)
	}
	// The check by the words of the format: CRC-32 (IEEE) of what is before
	// it, most significant bit first, five bits a character, zeros at the end.
	body := text[:len(text)-7]
	var bits strings.Builder
	for i := 31; i >= 0; i-- {
		bits.WriteByte('0' + byte(crc32.ChecksumIEEE([]byte(body))>>i&1))
	}
	padded := bits.String() + "000"
	for i := range 7 {
		value := 0
		for _, bit := range padded[i*5 : i*5+5] {
			value = value*2 + int(bit-'0')
		}
		if want := "abcdefghijklmnopqrstuvwxyz234567"[value]; text[len(body)+i] != want {
			t.Errorf("check character %d: got %q, want %q", i, text[len(body)+i], want)
		}
	}
}

func TestParseToken(t *testing.T) {
	longID := strings.Repeat("a", 63)
	longest, _ := authn.NewToken(longID, seed(0))
	tooLongID, _ := authn.NewToken(longID+"a", seed(0))
	upperID, _ := authn.NewToken("CI", seed(0))
	dashID, _ := authn.NewToken("-ci", seed(0))
	noID, _ := authn.NewToken("", seed(0))
	dotID, _ := authn.NewToken("a.b", seed(0))
	underscoreID, _ := authn.NewToken("a_b", seed(0))

	const foreign, malformed, check = "does not begin with gatehouse_", "not a complete access token", "checksum of the access token does not match"
	cases := []struct {
		name, text string
		id, err    string
	}{
		{name: "issued", text: goldenToken, id: "ci"},
		{name: "longest id", text: longest, id: longID},
		{name: "empty", text: "", err: foreign},
		{name: "JWT", text: "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJqYW5lIn0.c2ln", err: foreign},
		{name: "upper-case prefix", text: "Gatehouse" + goldenToken[9:], err: foreign},
		{name: "space in front", text: " " + goldenToken, err: foreign},
		{name: "prefix alone", text: "gatehouse_", err: malformed},
		{name: "prefix and id", text: "gatehouse_ci", err: malformed},
		{name: "no secret", text: "gatehouse_ci_", err: malformed},
		{name: "line end kept by a file", text: goldenToken + "\n", err: malformed},
		{name: "last character lost", text: goldenToken[:len(goldenToken)-1], err: malformed},
		{name: "character too many", text: goldenToken + "a", err: malformed},
		{name: "secret in upper case", text: "gatehouse_ci_" + strings.ToUpper(goldenToken[13:]), err: malformed},
		{name: "digit outside the alphabet", text: strings.Replace(goldenToken, "ci_a", "ci_1", 1), err: malformed},
		{name: "NUL in the secret", text: strings.Replace(goldenToken, "ci_a", "ci_\x00", 1), err: malformed},
		{name: "broken UTF-8 in the secret", text: strings.Replace(goldenToken, "ci_a", "ci_\xff", 1), err: malformed},
		{name: "id of 64 characters", text: tooLongID, err: malformed},
		{name: "upper-case id", text: upperID, err: malformed},
		{name: "id begins with a dash", text: dashID, err: malformed},
		{name: "no id", text: noID, err: malformed},
		{name: "dot in the id", text: dotID, err: malformed},
		{name: "underscore in the id", text: underscoreID, err: malformed},
		{name: "secret changed", text: strings.Replace(goldenToken, "ci_a", "ci_b", 1), err: check},
		{name: "id changed", text: strings.Replace(goldenToken, "_ci_", "_cj_", 1), err: check},
		{name: "check changed", text: goldenToken[:len(goldenToken)-1] + "y", err: check},
		{name: "unused bits of the check set", text: goldenToken[:len(goldenToken)-1] + "r", err: check},
		{name: "characters swapped", text: swap(goldenToken, len("gatehouse_ci_")+3), err: check},
		{name: "a megabyte", text: "gatehouse_" + strings.Repeat("_", 1<<20), err: malformed},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			id, err := authn.ParseToken(c.text)
			if id != c.id {
				t.Errorf("id: got %q, want %q", id, c.id)
			}
			switch {
			case c.err == "" && err != nil:
				t.Errorf("error: %v", err)
			case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
				t.Errorf("error: got %v, want one with %q", err, c.err)
			}
		})
	}
}

func swap(text string, i int) string {
	b := []byte(text)
	b[i], b[i+1] = b[i+1], b[i]
	return string(b)
}

// FuzzParseToken holds that an accepted text is the one text of its id and
// secret, that the id is a name an AccessToken may have, and that an error never
// holds what was parsed.
func FuzzParseToken(f *testing.F) {
	f.Add(goldenToken)
	f.Add("gatehouse_ci_")
	f.Add("gatehouse_" + strings.Repeat("a", 63) + "_" + strings.Repeat("a", 47))
	f.Fuzz(func(t *testing.T, text string) {
		id, err := authn.ParseToken(text)
		if err != nil {
			if id != "" {
				t.Errorf("an id with an error: %q", id)
			}
			if len(text) > 20 && strings.Contains(err.Error(), text[10:]) {
				t.Errorf("the error holds the token: %v", err)
			}
			return
		}
		if problems := validation.IsDNS1123Label(id); len(problems) > 0 {
			t.Errorf("id %q: %v", id, problems)
		}
		if want := len("gatehouse_") + len(id) + len("_") + 40 + 7; len(text) != want || !strings.HasPrefix(text, "gatehouse_"+id+"_") {
			t.Errorf("%q was accepted", text)
		}
	})
}
