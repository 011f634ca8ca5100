"""What people say in the sample chats of ``manage.py demo``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

Exchange = tuple[str, str]

LONG_TITLE: Final = "Moving the photo archive"
LONG: Final[tuple[Exchange, ...]] = (
    (
        "We have 4 TB of photos on an old NAS and want them on the new server. Where do we start?",
        "Start with an inventory, before anything is moved. Three numbers decide the rest: how many "
        "files there are, how large the largest are, and how many were changed in the last month.\n\n"
        "1. Count files and bytes per top folder.\n2. Note the oldest and the newest change.\n"
        "3. Check free space on the new server: 1.3 times the archive is comfortable.\n\n"
        "Copying 4 TB over a gigabit line takes about ten hours at best, so plan a first copy that "
        "runs for a night and a second one that only takes what has changed since.",
    ),
    (
        "Counted: 612,000 files, 3.9 TB, and about 900 changed in November.",
        "Good: few changes, many files. That makes the second copy short. With 612,000 files the "
        "walk through the tree costs more than the bytes of small files, so copy folder by folder "
        "and keep a log for each.\n\nUse a tool that can go on after a break and that compares by "
        "size and time first. A checksum of everything belongs at the end, once, not in each run. "
        "For 3.9 TB it reads every byte on both sides and takes about as long as the copy itself.",
    ),
    (
        "Does it matter that the NAS is formatted with a file system that knows no owner?",
        "Yes, in one way: owners and groups on the new server have to be decided, since there is "
        "nothing to copy them from. Give the whole tree to one group of editors, let directories "
        "pass their group on, and keep the files readable for the others.\n\nTimes do survive, but "
        "only to two seconds. Tell the copy to accept that difference; otherwise every file looks "
        "changed and the second run copies 3.9 TB again. That is the mistake people make here.",
    ),
    (
        "The group is called editors. Three people are in it: Ines, Paul and me.",
        "Then set it up like this: the group `editors` owns the tree, new folders take the group of "
        "their parent, and everybody else may read. Write down who is in it in the same place where "
        "you keep the passwords, because in two years nobody remembers.\n\nIf Paul only looks at "
        "pictures, leave him out and let him read. A group that contains people who never write is "
        "how a wrong drag and drop deletes a year.",
    ),
    (
        "Paul only looks. So it is Ines and me.",
        "Two people who may write, then. I would also keep one snapshot a day for a month: it costs "
        "little, since photos hardly ever change, and it is what saves you from the wrong drag and "
        "drop of one of the two.\n\nSnapshots are no backup. They live on the same disks. Keep one "
        "copy elsewhere, and try once a year to bring a folder back from it.",
    ),
    (
        "Where is elsewhere, if we do not want a cloud?",
        "Two external disks of 6 TB that take turns: one is at the office, one at your home, and you "
        "swap them on the first Monday of a month. Encrypt both, and keep the key with the "
        "passwords, not with the disk.\n\nThe swap is what fails in practice. Put it into the shared "
        "calendar with both names, and let the copy write its date into a file in the top folder: "
        "then a look at the disk tells how old it is.",
    ),
    (
        "Fine. Which day do we copy first?",
        "Friday evening. Nobody adds pictures on the weekend, and if something goes wrong there are "
        "two quiet days. Order of things:\n\n1. Friday 18:00: first copy, read only on the NAS.\n"
        "2. Saturday: look at the logs, count files on both sides.\n3. Sunday: checksums of both "
        "sides overnight.\n4. Monday 08:00: second copy, which should take minutes.\n"
        "5. Monday 09:00: the share on the NAS becomes read only for good.\n\n"
        "Tell everybody on Thursday that pictures of Friday afternoon come over on Monday.",
    ),
    (
        "The first copy has ended: 611,874 files. 126 are missing.",
        "That is a small and friendly number. Look at the log for errors first; 126 files out of "
        "612,000 are usually one of three things:\n\n- names that the new file system refuses,\n"
        "- files that were open,\n- hidden files that the count included and the copy left out.\n\n"
        "List the names that are on one side only, sorted by folder. If they are all in one folder "
        "you will know at once. Do not copy again before you have looked.",
    ),
    (
        "All 126 have a colon in their names, from 2009.",
        "Then it is the first kind: the camera software of that year wrote times into names. Rename "
        "them on the NAS, colon to dash, and keep a list of old and new names beside them, since "
        "somebody may have linked to them in a catalogue.\n\nAfter that a second run takes the 126 "
        "files in a minute. Count again on both sides; it should be 612,000 and whatever was added "
        "since Friday.",
    ),
    (
        "Renamed, copied, 612,000 on both sides. Now the checksums?",
        "Yes, and on both sides at the same time: they read different disks and do not disturb each "
        "other. Write the sums into one file a folder, with the path relative to the top, so that "
        "the two files can be compared as text.\n\nExpect it to take the night. In the morning there "
        "is either nothing to see, or a short list. A file whose sums differ while size and time "
        "agree is a read error on one of the two disks: read it again before you believe it.",
    ),
    (
        "Two files differ. Both from 2014, both on the old disk unreadable in places.",
        "Then the old disk is going, and you are moving at the right moment. For these two, look for "
        "an older copy: a mail, a print order, the memory card, the catalogue's preview. If there is "
        "none, keep what can be read and mark it.\n\nDo not run anything heavy on that disk any "
        "more. The second copy on Monday only has to look at the newest folders, so limit it to "
        "2026.",
    ),
    (
        "Found both in an old mail. Thanks! What is left for Monday?",
        "Little, and that is how it should be:\n\n1. 08:00: second copy, folder 2026 only.\n"
        "2. Count 2026 on both sides.\n3. 09:00: the old share becomes read only; put a text file "
        "into its top folder that says where everything is now.\n4. Ines and you write a picture "
        "each, Paul opens one.\n5. First snapshot, first external disk.\n\n"
        "Keep the NAS switched off but whole for a month. Then it may go.",
    ),
    (
        "Monday went well. The catalogue still points to the old paths, though.",
        "Catalogues keep paths in a database of their own. Nearly all of them have a function to "
        "find missing folders: point it at the top folder once, and it repairs everything below. "
        "Make a copy of the catalogue first; it is one file.\n\nFor the 126 renamed files the "
        "function finds nothing, since the names differ. That is what the list of old and new names "
        "is for: feed it in by hand, or leave those as they are and search by date.",
    ),
    (
        "It repaired everything but the 126. I will do those with the list this week.",
        "Good. Then the move is done, and three things remain that repeat themselves:\n\n"
        "- first Monday of a month: swap the disks,\n- once a quarter: look whether snapshots are "
        "still made,\n- once a year: bring a folder back from the disk at home and open ten "
        "pictures of it.\n\nWrite these three into the shared calendar with both names. A backup "
        "that nobody has tried to read is a hope.",
    ),
    (
        "Can you write the text file for the old share?",
        "Of course:\n\n```text\nThis share is read only since Monday, 30 November 2026.\n"
        'All pictures are on the new server, share "photos".\n'
        "The folders are the same. 126 files of 2009 have a dash where\n"
        "a colon was: see renamed-2009.txt in the same folder.\n"
        "Questions: Ines, or me.\n```\n\nPut it into the top folder under a name that sorts first, "
        "such as `00-READ-ME.txt`.",
    ),
    (
        "And a short mail to everybody?",
        '> Dear all, the photo archive has moved to the new server, share "photos". The folders '
        "are the same as before. The old share can still be read until the end of the year; nothing "
        "new can be put there. If you miss a picture, tell Ines or me which year it is from.\n\n"
        "Send it after Paul has opened a picture, not before.",
    ),
    (
        "Sent. What about phones, people want to add pictures from there.",
        "Let phones put pictures into one folder only, `inbox`, and move them into their year from "
        "there. It keeps the archive tidy and it keeps phones from needing the right to write "
        "everywhere.\n\nOnce a week one of you empties the inbox. If it grows for a month, nobody "
        "does, and then it is time to talk about it rather than to automate it.",
    ),
    (
        "Who moves them, is there a simple rule by date?",
        "Yes: the year and month in which the picture was taken, as the picture itself says; not the "
        "date of the file, which is when it was copied. Pictures without a date of their own go "
        "to `inbox/undated` and are looked at by a person.\n\nRun it by hand in the first weeks, "
        "with a list of what it would do, and look at the list. When it was right four times in a "
        "row, let it run on Sunday nights.",
    ),
)
SUMMARIES: Final = (
    (
        11,
        "## Goal\nMove the photo archive (3.9 TB, 612,000 files) from the old NAS to the new "
        "server without losing a file.\n\n## Constraints and preferences\nNo cloud. The NAS knows no owners and "
        "keeps times to two seconds.\n\n## Done\nFirst copy ran on Friday. 126 files of 2009 "
        "had colons in their names; renamed and copied. Checksums on both sides.\n\n## Decisions\n"
        "Group `editors` (Ines and the owner) writes, Paul reads. One snapshot a day for a month. "
        "Two encrypted 6 TB disks take turns.\n\n## Next step\nSecond copy on Monday 08:00, then "
        "the old share becomes read only.\n\n## Files, ids, numbers and links\nThe old disk has read errors.",
    ),
    (
        15,
        "## Goal\nMove the photo archive to the new server; done, what remains is routine.\n\n"
        "## Constraints and preferences\nNo cloud; Ines and the owner write, Paul reads.\n\n## Done\nEverything "
        "is moved and checked; two unreadable files were found in an old mail. The catalogue is "
        "repaired but for the 126 renamed files.\n\n## Decisions\nDisks are swapped on the first "
        "Monday of a month; a folder is brought back once a year.\n\n## Next step\nRepair the 126 "
        "with the list; tell everybody.\n\n## Files, ids, numbers and links\nThe old share is read only since 30 November.",
    ),
)

STREAK_TITLE: Final = "Notes for the board meeting"
STREAK: Final[tuple[Exchange, ...]] = tuple(
    (
        f"Agenda item {number}: {topic}. What do I have to say in two minutes?",
        f"For “{topic}” say what has changed since the last meeting, what it costs, and what you "
        "want from the board. In this order, because people stop listening when they have to guess "
        "what is asked of them.\n\nOne number is enough. Bring the second one only if somebody asks, "
        "and have it in writing. If the answer may be no, say beforehand what you do in that case: "
        "a board decides faster between two ways than about one.\n\nTwo minutes are about 260 "
        "words. Read them aloud once; if it takes longer than two minutes, take a sentence out "
        "rather than speaking faster.",
    )
    for number, topic in enumerate(
        (
            "the roof of the workshop",
            "new members since the summer",
            "the contract with the printer",
            "the spring exhibition",
            "the budget of the library",
            "insurance of lent objects",
            "the lift that does not work",
            "opening hours in winter",
            "the gift of the Marten family",
            "the election of the treasurer",
        ),
        start=1,
    )
)

SHORT: Final[tuple[tuple[str, tuple[Exchange, ...]], ...]] = (
    (
        "Bread that does not rise",
        (
            (
                "My sourdough bread stays flat. The starter is active.",
                "If the starter doubles in four to six hours it is not the starter. Then it is "
                "usually time or warmth: at 20 °C the dough wants about eight hours, not four. Take "
                "the dough at 24 °C and look at its volume instead of the clock.",
            ),
            (
                "It is 19 °C in the kitchen.",
                "That explains it. Put the bowl into the oven with only the lamp on: it comes to "
                "about 26 °C there. Then five to six hours, until it has grown by half.",
            ),
        ),
    ),
    (
        "Letter to the landlord",
        (
            (
                "The heating has not worked since Thursday. How do I write that, politely but clearly?",
                "Say since when, what does not work, what temperature you measured, and until when "
                "you expect an answer. Without reproach; that comes by itself in a second letter.\n\n"
                "> The heating in the flat on the second floor has not worked since Thursday. This "
                "morning it was 15 °C in the living room. Please let me know by Wednesday when it "
                "will be repaired.",
            ),
        ),
    ),
    (
        "Spanish for the journey",
        (
            (
                "Five sentences for the market, please, with pronunciation.",
                "1. *¿A cuánto está?* – how much is it?\n2. *Medio kilo, por favor* – half a kilo\n"
                "3. *¿Puedo probar?* – may I taste?\n4. *Nada más, gracias* – nothing else\n"
                "5. *¿Aceptan tarjeta?* – do you take cards?",
            ),
            (
                "And if I do not understand the answer?",
                "*¿Más despacio, por favor?* – slower, please. People are glad to repeat it, and "
                "numbers they show with their fingers anyway.",
            ),
        ),
    ),
    (
        "Regular expression for phone numbers",
        (
            (
                "I want to find German phone numbers in a text, with or without +49.",
                '```python\nr"(?:\\+49|0)[\\s/-]?\\d{2,5}[\\s/-]?\\d{3,9}"\n```\n\nIt finds both '
                "forms and one separator. It does not check whether the prefix exists; for that "
                "there is a library.",
            ),
        ),
    ),
)


@dataclass(frozen=True)
class Sample:
    """A command, and what it wrote."""

    command: str
    output: str


COMMANDS_TITLE: Final = "Receipts of the year"
COMMANDS: Final = (
    (
        "All receipts of the year are in the folder receipts. Please count them by month, and tell "
        "me which months look thin.",
        "I will count the files of each month by their names. It runs in the background; I come "
        "back to you as soon as it has ended.",
    ),
    "The count is done: 412 receipts. **April** (9) and **August** (11) look thin; the other "
    "months have between 31 and 48. In both months the numbering has gaps, so some receipts were "
    "probably never scanned. Shall I list the missing numbers?",
)
COUNT: Final = Sample(
    'for m in receipts/2026-*; do printf \'%s %s\\n\' "$m" "$(ls "$m" | wc -l)"; done',
    "receipts/2026-01 38\nreceipts/2026-02 31\nreceipts/2026-03 44\nreceipts/2026-04 9\n"
    "receipts/2026-05 47\nreceipts/2026-06 42\nreceipts/2026-07 48\nreceipts/2026-08 11\n"
    "receipts/2026-09 46\nreceipts/2026-10 48\nreceipts/2026-11 48\n",
)
CHECK: Final = Sample(
    "sha256sum -c receipts/checksums.txt",
    "receipts/2026-01/0001.pdf: OK\n… 410 lines …\nreceipts/2026-11/0412.pdf: OK\n",
)
TWICE: Final = (
    "Good. Some receipts may have been scanned twice. Please look for files with the same content.",
    "I will compare the checksums of all files. It runs in the background; I come back to you "
    "when it has ended.",
)
COMPARE: Final = Sample(
    "sha256sum receipts/2026-*/*.pdf | sort | uniq -w64 -d",
    "3f2a… receipts/2026-05/0127.pdf\n91c0… receipts/2026-07/0233.pdf\n",
)
