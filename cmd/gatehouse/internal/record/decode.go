package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// DecodeReview decodes the text of Reader.NextText. Request and Response share its memory. It
// returns the lookups as text for DecodeLookups, nil if there are none, and leaves Review.Lookups
// nil: those of a rollout are all the same.
//
// Reading a recording is mostly this. It checks the text once, where json.Unmarshal reads the
// request five times.
func DecodeReview(text []byte, into *Review) (lookups []byte, err error) {
	value, err := rawjson.Parse(text)
	if err != nil {
		return nil, notAReview(err)
	}
	if value.Kind() != rawjson.Object {
		return nil, notAReview(fmt.Errorf("it is %s", value.Kind()))
	}
	*into = Review{}
	for name, member := range value.Members() {
		if member.Kind() == rawjson.Null {
			continue
		}
		fail := func(failed error) {
			if failed != nil {
				err = errors.Join(err, notAReview(fmt.Errorf("%s: %w", name.Text(), failed)))
			}
		}
		switch {
		case name.Is("id"):
			fail(decodeString(member, &into.ID))
		case name.Is("time"):
			var at string
			fail(decodeString(member, &at))
			parsed, failed := time.Parse(time.RFC3339Nano, at)
			fail(failed)
			into.Time = parsed
		case name.Is("took"):
			n, failed := strconv.ParseInt(string(member), 10, 64)
			fail(failed)
			into.Took = time.Duration(n)
		case name.Is("endpoint"):
			fail(decodeString(member, &into.Endpoint))
		case name.Is("config"):
			fail(decodeString(member, &into.Config))
		case name.Is("replica"):
			fail(decodeString(member, &into.Replica))
		case name.Is("decision"):
			fail(decodeString(member, (*string)(&into.Decision)))
		case name.Is("reason"):
			fail(decodeString(member, &into.Reason))
		case name.Is("request"):
			into.Request = json.RawMessage(member)
		case name.Is("response"):
			into.Response = json.RawMessage(member)
		case name.Is("redacted"):
			into.Redacted = member.IsTrue()
		case name.Is("token"):
			into.Token = new(Token)
			fail(json.Unmarshal(member, into.Token))
		case name.Is("lookups"):
			lookups = member
		}
	}
	return lookups, err
}

// DecodeLookups decodes the lookups of DecodeReview.
func DecodeLookups(text []byte) (*Lookups, error) {
	if text == nil {
		return nil, nil //nolint:nilnil // there are none, as in Review
	}
	out := new(Lookups)
	if err := json.Unmarshal(text, out); err != nil {
		return nil, notAReview(fmt.Errorf("lookups: %w", err))
	}
	return out, nil
}

func notAReview(err error) error {
	return errors.New("is not a review of a recording: " + truncate.Runes(err.Error(), 200))
}

func decodeString(v rawjson.Value, into *string) error {
	if v.Kind() != rawjson.String {
		return fmt.Errorf("it is %s, not a string", v.Kind())
	}
	*into = known(v)
	return nil
}

// known returns the text of a string, without an allocation for those of most reviews.
func known(v rawjson.Value) string {
	for _, text := range [...]string{"validate", "mutate", "authenticate", string(review.Allowed), string(review.Denied)} {
		if v.Is(text) {
			return text
		}
	}
	return v.Text()
}
