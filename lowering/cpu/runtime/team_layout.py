"""What a team's native code and its callers agree on: offsets, in bytes, in the memory of a team.

A team is what runs one program for all members of named axes at once, a thread each. Its memory holds
the team, its members, the groups of members that exchange arrays, and a slot of each member in each
group. What different threads write lies in different lines of the cache.
"""

# Of a team: why it failed, the bell that sleeping members hear, how many sleep.
FAILED, BELL, SLEEPERS, ROUND, ASLEEP, LEFT_TO_DO = (64 * k for k in range(6))
# How many members, where they are, how often to offer the CPU before sleeping, whether to keep loops'
# threads from helping, whether the team's threads should end.
SIZE, MEMBERS, LOOK, ALONE, STOPPED = (6 * 64 + 8 * k for k in range(5))
WHY = 7 * 64  # kind, member, its site, the other member, its site
TEAM_BYTES = 8 * 64

# Of a member; from SITE on, what it waits for.
TEAM, RANK, COMMS, ENTRY, ARGUMENTS, PARAMS, WORKSPACE, THREAD = (8 * k for k in range(8))
SITE, GROUP, SEQUENCE, BLOCKED, EPISODES, LEFT, STATUS = (64 + 8 * k for k in range(7))
MEMBER_BYTES = 128

# Of a group: its size, slots, and the numbers of its members in the team.
GROUP_SIZE, SLOTS, NUMBERS = 0, 8, 16
GROUP_BYTES = 64

# Of a slot: how many exchanges its member came to; then two records, which exchanges use in turn.
RECORD, RECORD_BYTES = 64, 512
RECORD_SITE, RECORD_IN, RECORD_OUT, RECORD_DATA = 0, 8, 16, 64
SMALL = RECORD_BYTES - RECORD_DATA  # bytes that are copied into a record
SLOT_BYTES = RECORD + 2 * RECORD_BYTES

# Words of what an exchange does.
D_SITE, D_COMM, D_KIND, D_COUNT, D_ITEM, D_COMBINE, D_BYTES, D_SOURCES = (8 * k for k in range(8))
REDUCE, GATHER, REDUCE_SCATTER, ALL_TO_ALL, PERMUTE, INDEX = range(6)

# Why a team failed.
DISAGREE, LEFT_EARLY, DEADLOCK, MEMBER_FAILED, INTERRUPTED = range(1, 6)
