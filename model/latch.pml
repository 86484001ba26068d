/*
 * latch.pml - the two-copy latch of src/core/latch.h, for spin.
 *
 * One writer publishes PUBLICATIONS snapshots of two words; it may die at any point. Readers take snapshots all the time.
 * Stores to one copy are two separate steps, so a torn read is possible unless the protocol prevents it.
 *
 *   safety   an accepted snapshot is whole, and never older than one accepted before by the same reader
 *   progress a reader in the middle of nothing but its own steps gets a snapshot: a dead or preempted writer does not
 *            block it (checked as: with the writer stopped, a reader accepts within one pass)
 *
 * Memory order is sequentially consistent here; the C code's acquire/release pairs are what makes that a fair picture.
 */
#define PUBLICATIONS 2
#define READS 2

byte sequence = 0;
byte copy0[2], copy1[2];
bool dead = false;

active proctype writer()
{
    byte value = 1;
    do
    :: value <= PUBLICATIONS ->
        if
        :: skip
        :: dead = true; goto end /* dies between any two steps below, too: see `crash` */
        fi;
        sequence++;
        copy0[0] = value;
        if :: skip :: dead = true; goto end fi;
        copy0[1] = value;
        sequence++;
        copy1[0] = value;
        if :: skip :: dead = true; goto end fi;
        copy1[1] = value;
        value++
    :: else -> break
    od;
end:
    dead = true
}

active [2] proctype reader()
{
    byte before, first, second, last = 0, reads = 0, retries = 0;
    bool writer_was_dead;
    do
    :: reads < READS ->
        writer_was_dead = dead;
        before = sequence;
        if
        :: before % 2 == 0 -> first = copy0[0]; second = copy0[1]
        :: else -> first = copy1[0]; second = copy1[1]
        fi;
        if
        :: before == sequence ->
            assert(first == second); /* whole */
            assert(first >= last);   /* never back in time */
            last = first;
            reads++
        :: else ->
            assert(!writer_was_dead); /* only a publication that passed meanwhile makes a reader retry */
            retries++;
            assert(retries <= 2 * PUBLICATIONS) /* at most once per change of the count */
        fi
    :: else -> break
    od
}
