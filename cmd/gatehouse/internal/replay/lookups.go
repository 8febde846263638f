package replay

import "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record"

// Lookups returns what the decision on the review read besides the request, nil if that was not
// recorded. The error is that the review cannot be read.
func (i *Item) Lookups() (*record.Lookups, error) {
	text, err := record.DecodeReview(i.text, new(record.Review))
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller names the line
	}
	return record.DecodeLookups(text) //nolint:wrapcheck // as above
}
