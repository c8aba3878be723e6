package tokens

import "time"

// shares tell which places the tokens lost of late went to. Lost tokens of which nothing is remembered get the same shares.
type shares struct {
	minutes [sharesMinutes]struct {
		minute int64
		lost   Counts
	}
	carry [NumPlaces]float64 // of a token, what rounding has left
}

const sharesMinutes = 10

// add adds n lost tokens to counts: all of them to place or, if that is NumPlaces, by the shares.
func (s *shares) add(counts *Counts, place Place, n, now int64) {
	if place != NumPlaces {
		s.note(place, n, now)
		counts[place] += n
		return
	}
	lost := s.recent(now)
	total := lost.Total()
	if total == 0 {
		counts[Evicted] += n
		return
	}
	left := n
	for p := Emptied; p < Unsaved; p++ {
		s.carry[p] += float64(n) * float64(lost[p]) / float64(total)
		whole := min(int64(max(0, s.carry[p])), left)
		s.carry[p] -= float64(whole)
		counts[p] += whole
		left -= whole
	}
	counts[Unsaved] += left
}

// note adds to what went to a place of late.
func (s *shares) note(place Place, n, now int64) {
	m := &s.minutes[now/int64(time.Minute)%sharesMinutes]
	if minute := now / int64(time.Minute); m.minute != minute {
		m.minute, m.lost = minute, Counts{}
	}
	m.lost[place] += n
}

// recent returns the lost tokens of the last ten minutes whose places are known.
func (s *shares) recent(now int64) (lost Counts) {
	for i := range s.minutes {
		if m := &s.minutes[i]; now/int64(time.Minute)-m.minute < sharesMinutes {
			for p := Emptied; p <= Unsaved; p++ {
				lost[p] += m.lost[p]
			}
		}
	}
	return lost
}

// largest returns the place to which most of the tokens lost of late went.
func (s *shares) largest(now int64) Place {
	lost := s.recent(now)
	largest := Evicted
	for p := Emptied; p <= Unsaved; p++ {
		if lost[p] > lost[largest] {
			largest = p
		}
	}
	return largest
}
